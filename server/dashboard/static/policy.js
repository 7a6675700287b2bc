// The policy: what is in force, with its lines; an editor that checks, previews and applies a change; roll-outs; the candidate.
import { h, fill, table, whole, say, clock } from './dom.js'
import { call, get, post } from './api.js'
import { confirm } from './keys.js'
import { t } from './words.js'

export function open (main, state) {
  const at = {}
  let closed = false; let etag = ''; let saved = ''; let last = 0
  fill(main,
    h('div', { class: 'head' }, h('h1', {}, t('Policy')), at.from = h('p', { class: 'soft small' })),
    at.candidate = h('div'),
    h('section', { class: 'card' },
      h('div', { class: 'head' }, h('h2', {}, t('In force')), h('div', { class: 'row' }, at.edit = h('button', { onclick: edit }, t('Edit')), at.reload = h('button', { onclick: reload }, t('Reload the file')))),
      at.text = h('div'),
      at.result = h('div', { 'aria-live': 'polite' })),
    at.rolls = h('section', { class: 'card' }))
  load()

  async function load () {
    try {
      const answer = await call('GET', '/v1/policy', undefined, { Accept: 'application/yaml' })
      if (closed) return
      etag = answer.etag; saved = answer.text
      fill(at.from, state.live?.file || '', ' · ', answer.type.startsWith('application/yaml') ? t('passwords of stores are hidden') : t('shown as JSON: its text needs a token'))
      view([])
      rolls()
      candidate()
    } catch (e) { fill(at.text, h('p', { class: 'notice wrong' }, e.message)) }
  }

  // view shows the text by lines. Lines with problems are marked.
  function view (problems) {
    const wrong = new Set(problems.map(p => p.line))
    fill(at.text, h('pre', { class: 'code', tabindex: 0, 'aria-label': t('The policy in force') }, saved.replace(/\n$/, '').split('\n').map((line, i) => h('span', { class: wrong.has(i + 1) && 'wrong' }, line === '' ? ' ' : line))))
    at.edit.hidden = false
    at.reload.hidden = false
  }

  function edit () {
    fill(at.result)
    const area = h('textarea', { class: 'edit', name: 'policy', spellcheck: 'false', autocapitalize: 'off', 'aria-label': t('The policy, to be changed'), value: saved })
    at.area = area
    const save = h('input', { type: 'checkbox', name: 'save' })
    fill(at.text, h('div', { class: 'card' }, area, h('div', { class: 'row' },
      h('button', { class: 'main', onclick: () => check(area.value) }, t('Check')),
      h('button', { onclick: () => preview(area.value) }, t('Preview')),
      h('button', { onclick: () => confirm(t('Apply this policy?'), () => apply(area.value, save.checked)), disabled: !state.live?.token }, t('Apply…')),
      h('label', { class: 'side' }, save, t('also write it to the file')),
      h('button', { class: 'light', onclick: () => { view([]); fill(at.result) } }, t('Cancel'))),
    !state.live?.token && h('p', { class: 'small soft' }, t('A policy is taken only by a server with admin.token_file.'))))
    at.edit.hidden = true
    at.reload.hidden = true
    area.focus()
    area.setSelectionRange(0, 0)
  }

  const changes = list => list.length === 0 ? h('p', {}, t('Nothing changes.')) : h('ul', {}, list.map(c => h('li', {}, c.text)))
  const warnings = list => (list || []).map(p => h('p', { class: 'notice' }, t('line {0}', p.line) + ': ' + p.message, p.fix && h('div', { class: 'small soft' }, p.fix)))

  // failed shows what is wrong with a policy. A problem is a button that leads to its line.
  function failed (e) {
    fill(at.result, h('div', { class: 'notice wrong', role: 'alert' }, h('p', {}, e.message),
      (e.problems || []).map(p => h('p', {}, h('button', { class: 'light', onclick: () => toLine(p.line) }, t('line {0}', p.line)), ' ', p.message, p.fix && h('div', { class: 'small' }, p.fix)))))
  }

  function toLine (n) {
    const area = at.area
    if (!area?.isConnected) return
    const lines = area.value.split('\n')
    const begin = lines.slice(0, n - 1).reduce((sum, l) => sum + l.length + 1, 0)
    area.focus()
    area.setSelectionRange(begin, begin + (lines[n - 1] || '').length)
    area.scrollTop = Math.max(0, (n - 6) * area.scrollHeight / lines.length)
  }

  async function check (text) {
    try {
      const plan = await call('PUT', '/v1/policy?dry_run=1', text)
      fill(at.result, h('div', { class: 'notice' }, h('p', {}, t('The policy is valid. It would change:')), changes(plan.changes)), warnings(plan.warnings))
    } catch (e) { failed(e) }
  }

  async function apply (text, save) {
    try {
      const plan = await call('PUT', '/v1/policy' + (save ? '?save=1' : ''), text, { 'If-Match': etag })
      say(t('The policy is in force.'))
      await load()
      fill(at.result, h('div', { class: 'notice' }, changes(plan.changes)), warnings(plan.warnings))
    } catch (e) { failed(e) }
  }

  async function reload () {
    try {
      const plan = await post('/v1/reload')
      say(t('The file was read again.'))
      await load()
      fill(at.result, h('div', { class: 'notice' }, changes(plan.changes)), warnings(plan.warnings))
    } catch (e) { failed(e) }
  }

  async function preview (text) {
    let p
    try { p = await call('POST', '/v1/policy/preview', text) } catch (e) { failed(e); return }
    const other = p.outcomes.filter(o => o.live !== o.candidate).reduce((sum, o) => sum + o.requests, 0)
    fill(at.result, h('div', { class: 'notice' },
      h('p', {}, p.requests === 0 ? t('No request has come yet that could be tried.') : t('{0} requests, from {1} to {2}: decided otherwise about {3}.', whole(p.requests), clock(p.from), clock(p.to), whole(other))),
      h('p', { class: 'small' }, t('{0} clients would be newly refused, {1} no longer.', whole(p.clients_newly_refused), whole(p.clients_no_longer_refused)), ' ', t('Both policies begin with unused limits.')),
      p.unseen_headers.length > 0 && h('p', { class: 'small' }, t('Not kept, and so empty: {0}', p.unseen_headers.join(', '))),
      p.left_out.length > 0 && h('p', { class: 'small' }, t('Left out: {0}', p.left_out.join(', ')))),
    h('div', { class: 'card' }, table(t('By limit'), [{ label: t('Limit') }, { label: t('admitted now'), number: true }, { label: t('then'), number: true }, { label: t('delayed now'), number: true, late: true }, { label: t('then'), number: true, late: true }, { label: t('refused now'), number: true }, { label: t('then'), number: true }],
      p.limits.map(l => [l.limit, whole(l.now.allowed), whole(l.next.allowed), whole(l.now.delayed), whole(l.next.delayed), whole(l.now.limited), whole(l.next.limited)]))))
  }

  // rolls shows a slider for each limit with a roll_out, which is a change of the text like any other.
  function rolls () {
    const all = (state.live?.limits || []).filter(l => l.roll_out && !l.rest)
    fill(at.rolls, h('h2', {}, t('Roll-outs')), all.length === 0 ? h('p', { class: 'soft' }, t('No limit has roll_out: 5%, which would enforce it for a part of its keys.')) : all.map(l => {
      const shown = h('output', {}, l.roll_out)
      const slider = h('input', { type: 'range', min: 1, max: 100, step: 1, value: Math.round(parseFloat(l.roll_out)), 'aria-label': t('Share of the keys of {0}', l.name), oninput: e => { shown.textContent = e.target.value + '%' } })
      return h('div', { class: 'row' }, h('strong', {}, l.name), slider, shown,
        h('button', { disabled: !state.live?.token, onclick: () => roll(l.name, slider.value + '%') }, t('Apply…')))
    }))
  }

  function roll (name, share) {
    const next = withShare(saved, name, share)
    if (!next) { edit(); say(t('Change roll_out in the text: it is not written in a way that the slider knows.')); return }
    confirm(t('Enforce {0} for {1} of its keys?', name, share), () => apply(next, false))
  }

  // candidate shows the policy on trial, if there is one.
  async function candidate () {
    last = Date.now()
    let c
    try { c = await get('/v1/candidate') } catch { fill(at.candidate); return }
    if (closed || at.candidate.contains(document.activeElement)) return
    fill(at.candidate, h('section', { class: 'card' },
      h('div', { class: 'head' }, h('h2', {}, t('Candidate on trial')), h('span', { class: 'soft small' }, c.file, ' · ', t('since {0}', clock(c.since)))),
      h('p', {}, t('{0} requests, decided otherwise about {1}.', whole(c.requests), whole(c.disagreed))),
      table(t('Outcomes'), [{ label: t('now') }, { label: t('by the candidate') }, { label: t('requests'), number: true }], c.counts.map(o => [o.live, o.live === o.candidate ? o.candidate : h('strong', {}, o.candidate), whole(o.requests)])),
      table(t('Latest disagreements'), [{ label: t('At') }, { label: t('now') }, { label: t('by the candidate') }, { label: t('Route'), late: true }, { label: t('Key') }],
        c.disagreements.slice(0, 12).map(d => [new Date(d.at).toLocaleTimeString(), d.live + (d.live_limit ? ' (' + d.live_limit + ')' : ''), d.candidate + (d.candidate_limit ? ' (' + d.candidate_limit + ')' : ''), d.live_route || '–', h('bdi', { class: 'key' }, d.shown || '–')]), t('None so far.')),
      h('h3', {}, t('Promoting it changes')), changes(c.changes),
      h('div', { class: 'row' }, h('button', { class: 'main', onclick: () => confirm(t('Make the candidate the policy in force?'), () => promote(c.etag)) }, t('Promote…')))))
  }

  // promote takes the candidate that was shown: another one may be on trial since then.
  async function promote (shown) {
    document.activeElement?.blur()
    try { await post('/v1/promote', {}, { 'If-Match': shown }); say(t('The candidate is in force.')); await load() } catch (e) { failed(e) }
  }

  return {
    update () { if (Date.now() - last > 5000) candidate() },
    close () { closed = true }
  }
}

// withShare changes roll_out of a limit in the text of a policy; null where it finds none.
export function withShare (text, name, share) {
  const lines = text.split('\n')
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  const start = new RegExp('^(\\s+)["\']?' + escaped + '["\']?\\s*:')
  for (let i = 0; i < lines.length; i++) {
    const found = start.exec(lines[i])
    if (!found) continue
    for (let j = i; j < lines.length && (j === i || lines[j].trim() === '' || /^\s*/.exec(lines[j])[0].length > found[1].length); j++) {
      const next = lines[j].replace(/(["']?roll_out["']?\s*:\s*)["']?[0-9.]+\s*%["']?/, (_, before) => before + (before.startsWith('"') ? JSON.stringify(share) : share))
      if (next !== lines[j] || /roll_out["']?\s*:/.test(lines[j])) { lines[j] = next; return lines.join('\n') }
    }
  }
  return null
}
