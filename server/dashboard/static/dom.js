// Elements without markup: everything that a server says is text, so no name can become an element.

// h makes an element: h('p', { class: 'soft', onclick: f }, 'text', otherElement).
export function h (tag, attributes = {}, ...children) {
  const e = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue
    if (typeof value === 'function') e.addEventListener(name.slice(2), value)
    else if (name === 'value') e.value = value
    else e.setAttribute(name, value === true ? '' : name === 'aria-label' ? plain(String(value)) : value)
  }
  e.append(...children.flat(9).filter(c => c != null && c !== false).map(c => c instanceof Node ? c : plain(String(c))))
  return e
}

// Control and format characters, letters that are invisible, and heaps of accents would make a name look like another one, or
// write over its neighbours.
const hidden = /(?![\t\n])[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]|(?<=\p{M}\p{M})\p{M}/gu

// plain is a text as it may be shown: at most 2000 characters, with everything invisible written as its number.
export function plain (text) {
  if (text.length > 2000) text = text.slice(0, 2000) + '…'
  return text.replace(hidden, c => {
    const n = c.codePointAt(0).toString(16).padStart(4, '0')
    return n.length > 4 ? '\\u{' + n + '}' : '\\u' + n
  })
}

// fill replaces what is in an element.
export function fill (e, ...children) {
  e.replaceChildren(...children.flat(9).filter(c => c != null && c !== false).map(c => c instanceof Node ? c : plain(String(c))))
  return e
}

// table makes a table: columns are { label, number }, and the first cell of a row is its header.
export function table (caption, columns, rows, none) {
  const cell = (value, i) => h(i === 0 ? 'th' : 'td', { scope: i === 0 && 'row', class: [columns[i].number && 'n', columns[i].late && 'late'].filter(Boolean).join(' ') || false }, value)
  if (rows.length === 0) return h('div', {}, h('h2', {}, caption), h('p', { class: 'soft' }, none || '–'))
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', {}, h('caption', {}, caption),
      h('thead', {}, h('tr', {}, columns.map(c => h('th', { scope: 'col', class: [c.number && 'n', c.late && 'late'].filter(Boolean).join(' ') || false }, c.label)))),
      h('tbody', {}, rows.map(row => h('tr', {}, row.map(cell))))))
}

let ending
// say tells what has happened, also to those who hear the page.
export function say (text) {
  const at = document.getElementById('said')
  at.textContent = plain(text)
  clearTimeout(ending)
  ending = setTimeout(() => { at.textContent = '' }, 7000)
}

const units = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]
// number writes a count or a rate in at most four digits.
export function number (n) {
  if (!Number.isFinite(n)) return '–'
  for (const [size, unit] of units) if (Math.abs(n) >= size * 10) return trim(n / size) + ' ' + unit
  return trim(n)
}
const trim = n => n === 0 ? '0' : Math.abs(n) >= 100 ? Math.round(n).toLocaleString(document.documentElement.lang) : Math.abs(n) >= 10 ? n.toFixed(n % 1 ? 1 : 0) : n % 1 ? n.toFixed(n < 1 ? 2 : 1) : String(n)

// whole writes a count with all of its digits.
export const whole = n => n.toLocaleString(document.documentElement.lang)

// span writes milliseconds as a duration.
export function span (ms) {
  if (ms < 1000) return ms + ' ms'
  const s = Math.ceil(ms / 1000)
  if (s < 120) return s + ' s'
  const m = Math.floor(s / 60)
  if (m < 120) return m + ' min ' + (s % 60 ? s % 60 + ' s' : '')
  return Math.floor(m / 60) + ' h ' + (m % 60) + ' min'
}

// clock writes a moment.
export const clock = text => text ? new Date(text).toLocaleString(document.documentElement.lang, { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' }) : '–'
