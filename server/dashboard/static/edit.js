// Changes of single values in the text of a policy, which leave everything else as it is written.

const literal = text => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
const indent = line => /^\s*/.exec(line)[0].length
// value is a text in quotation marks, or what begins with none.
const value = /(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^#"'\s](?:[^#]|\S#)*?)/.source

// withField sets a field of an entry of a section, or takes it out where the value is null. It returns null where the text is not
// written in a way that it knows: an entry in a block, or in braces on one line.
export function withField (text, section, name, field, to) {
  const lines = text.split('\n')
  const begin = lines.findIndex(l => new RegExp('^["\']?' + literal(section) + '["\']?\\s*:\\s*(#.*)?$').test(l))
  if (begin < 0) return null
  const entry = new RegExp('^\\s+["\']?' + literal(name) + '["\']?\\s*:\\s*')
  let first = -1
  for (let i = begin + 1; i < lines.length; i++) {
    if (blank(lines[i])) continue
    if (indent(lines[i]) === 0) return null
    if (first < 0) first = indent(lines[i])
    if (indent(lines[i]) !== first || !entry.test(lines[i])) continue
    const head = entry.exec(lines[i])[0]
    const rest = lines[i].slice(head.length)
    const written = to === null ? null : typeof to === 'string' ? JSON.stringify(to) : String(to)
    if (/^(#.*)?$/.test(rest)) return inBlock(lines, i, first, field, written)
    const line = inBraces(rest, field, written)
    if (line === null) return null
    lines[i] = head + line
    return lines.join('\n')
  }
  return null
}

const blank = line => /^\s*(#.*)?$/.test(line)

function inBlock (lines, at, depth, field, written) {
  const start = new RegExp('^(\\s+["\']?' + literal(field) + '["\']?\\s*:\\s*)(.*)$')
  let inner = 0
  let end = at + 1
  for (; end < lines.length && (blank(lines[end]) || indent(lines[end]) > depth); end++) {
    if (blank(lines[end])) continue
    inner ||= indent(lines[end])
    const found = indent(lines[end]) === inner && start.exec(lines[end])
    if (!found) continue
    if (!new RegExp('^' + value + '\\s*(#.*)?$').test(found[2]) || /^[|>&*!]/.test(found[2])) return null // a text of several lines
    const comment = /\s#.*$/.exec(found[2].replace(/"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'/, ''))?.[0] || ''
    if (written === null) lines.splice(end, 1)
    else lines[end] = found[1] + written + comment
    return lines.join('\n')
  }
  if (inner === 0) return null
  if (written !== null) lines.splice(at + 1, 0, ' '.repeat(inner) + field + ': ' + written)
  return lines.join('\n')
}

function inBraces (rest, field, written) {
  const all = /^\{((?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^{}"'])*)\}(\s*(?:#.*)?)$/.exec(rest)
  if (!all) return null // nested, or over several lines
  const parts = all[1].match(/(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,"'])+/g)?.map(p => p.trim()).filter(Boolean) || []
  const start = new RegExp('^["\']?' + literal(field) + '["\']?\\s*:')
  const i = parts.findIndex(p => start.test(p))
  if (i >= 0 && written === null) parts.splice(i, 1)
  else if (i >= 0) parts[i] = field + ': ' + written
  else if (written !== null) parts.push(field + ': ' + written)
  return '{ ' + parts.join(', ') + ' }' + all[2]
}
