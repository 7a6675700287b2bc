// Keys: the heaviest and the most refused, why a key is refused, and what an operator can do about it.
import { h, fill, table, whole, say, span, clock } from './dom.js'
import { get, post } from './api.js'
import { t } from './words.js'

let identities = false

export function open (main, state) {
  const at = {}
  let closed = false; let last = 0
  const limits = () => (state.live?.limits || []).filter(l => !l.rest)
  const chosen = () => at.limit.value
  const keyOf = () => at.key.value.trim() === '' ? [] : parse(at.key.value.trim())
  fill(main,
    h('div', { class: 'head' }, h('h1', {}, t('Keys'))),
    h('section', { class: 'card' }, h('h2', {}, t('Look up a key')),
      h('form', { class: 'line', onsubmit: e => { e.preventDefault(); lookUp() } },
        h('label', {}, t('Limit'), at.limit = h('select', { name: 'limit', onchange: () => { hint(); list() } }, limits().map(l => h('option', { value: l.name, selected: l.name === state.rest }, l.name)))),
        h('label', {}, t('Key'), at.key = h('input', { name: 'key', size: 30, autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'keyhint' })),
        h('button', { class: 'main' }, t('Look up'))),
      at.hint = h('p', { class: 'small soft', id: 'keyhint' }),
      at.found = h('div', { 'aria-live': 'polite' })),
    h('div', { class: 'head' }, h('p', { class: 'soft small' }, t('Counted since the limit began, or since the server started. A count may be too large by the number after ±.')),
      h('label', { class: 'side' }, h('input', { type: 'checkbox', checked: identities, onchange: e => { identities = e.target.checked; list() } }), t('Show identities'))),
    at.lists = h('div', { class: 'halves' }),
    at.bans = h('section', { class: 'card' }))
  hint(); list(); bans()

  function hint () {
    const l = limits().find(l => l.name === chosen())
    fill(at.hint, l ? (l.key ? t('The key is: {0}. Separate its parts by commas, or write a JSON array.', l.key) : t('This limit has no key: leave the field empty.')) + ' ' : '', h('span', { class: 'mono' }, l ? l.algorithm + ' ' + l.rule : ''))
  }

  // list shows the heaviest and the most refused keys.
  async function list () {
    last = Date.now()
    if (!chosen()) return
    let answer
    try { answer = await get('/v1/keys', { limit: chosen(), n: 20, identities: identities ? 1 : '' }) } catch (e) { if (!closed) fill(at.lists, h('p', { class: 'notice wrong' }, e.message)); return }
    const of = answer.limits[0]
    if (closed || of?.limit !== chosen() || at.lists.contains(document.activeElement)) return
    if (!of.counts) { fill(at.lists, h('p', { class: 'notice' }, t('Keys of this limit are not counted: it limits requests in flight.'))); return }
    fill(at.lists, h('section', { class: 'card' }, one(t('Most refused'), of.refused, t('refusals'))), h('section', { class: 'card' }, one(t('Heaviest'), of.heaviest, t('cost'))))
  }

  function one (title, keys, what) {
    const max = Math.max(1, ...keys.map(k => k.count))
    return table(title, [{ label: t('Key') }, { label: h('span', { class: 'unseen' }, t('Share')) }, { label: what, number: true }, { label: '±', number: true }, { label: h('span', { class: 'unseen' }, t('Actions')) }],
      keys.map(k => [
        h('bdi', { class: 'key' }, k.key ? write(k.key) : k.long ? t('(too long: kept as a hash)') : k.shown),
        h('progress', { class: 'bar', max, value: k.count, 'aria-label': what }), whole(k.count), k.error ? whole(k.error) : '0',
        k.key ? h('button', { class: 'light', onclick: () => { at.key.value = write(k.key); at.found.scrollIntoView({ block: 'center' }); lookUp() }, 'aria-label': t('Look up {0}', write(k.key).slice(0, 200)) }, t('Look up')) : ''
      ]), t('None so far.'))
  }

  async function lookUp () {
    const limit = chosen(); const key = keyOf()
    if (key === null) { fill(at.found, wrong(t('This is not a JSON array of texts.'))); return }
    let x; let used = { usage: [] }
    try {
      x = await get('/v1/explain', { limit, key })
      if (key.length) used = await get('/v1/usage', { limit, key }).catch(() => used)
    } catch (e) { fill(at.found, wrong(e.message)); return }
    if (closed) return
    const u = used.usage[0]
    const act = (text, f) => h('button', { onclick: f }, text)
    fill(at.found, h('div', { class: 'card' },
      h('div', { class: 'head' }, h('h3', {}, h('bdi', { class: 'key' }, write(x.key) || limit)), h('strong', { class: x.allowed || x.waits_ms ? 'good' : 'bad' }, x.allowed ? t('admitted') : x.waits_ms ? t('delayed') : t('refused'))),
      h('p', {}, sentence(x)),
      h('dl', { class: 'facts' },
        fact(t('left'), t('{0} of {1}', whole(x.remaining), whole(x.capacity))),
        x.waits_ms && fact(t('waits'), span(x.waits_ms)),
        !x.allowed && !x.waits_ms && fact(t('clears'), x.retry_after_ms === -1 ? t('never: no wait helps') : t('in {0}, at {1}', span(x.retry_after_ms || 0), clock(x.clears_at))),
        fact(t('full again'), t('in {0}', span(x.reset_after_ms))),
        x.arithmetic && fact(t('arithmetic'), h('span', { lang: 'en' }, x.arithmetic)),
        fact(t('rule'), h('span', { class: 'mono' }, x.algorithm + ' ' + Object.entries(x.parameters || {}).map(([k, v]) => k + '=' + v).join(' '))),
        fact(t('decided by'), x.decided_by.replace('_', '-')), x.store && fact(t('store'), x.store),
        u && u.used != null && fact(t('used'), whole(u.used)), x.override_ends && fact(t('ends'), clock(x.override_ends))),
      h('div', { class: 'row' },
        act(t('Reset'), () => confirm(t('Reset this key? It starts over without counts.'), () => change('/v1/reset', { limit, key }, t('The key was reset.')))),
        act(t('Ban…'), () => duration(t('Ban this key'), d => change('/v1/ban', { limit, key, for: d }, t('The key is banned.')))),
        act(t('Grant…'), () => duration(t('Let this key pass'), d => change('/v1/grant', { limit, key, for: d }, t('The key has a grant.')))),
        (x.decided_by === 'ban' || x.decided_by === 'grant') && act(t('Lift'), () => change('/v1/lift', { limit, key }, t('Lifted.')))),
      table(t('Latest refusals'), [{ label: t('At') }, { label: t('Route') }, { label: t('cost'), number: true }, { label: t('left'), number: true }, { label: t('retry after'), number: true }],
        x.refusals.map(r => [moment(r.at), r.route || '–', whole(r.cost), t('{0} of {1}', whole(r.remaining), whole(r.capacity)), [r.banned && t('ban') + ' ', r.retry_after_ms == null ? '–' : span(r.retry_after_ms)]]), t('None is known. Of all limits together, the latest 4096 refusals are kept.'))))
  }

  async function change (path, body, done) {
    try { await post(path, body); say(done) } catch (e) { say(e.message) }
    lookUp(); bans()
  }

  // bans lists the bans and grants in force.
  async function bans () {
    let all
    try { all = (await get('/v1/overrides')).overrides } catch (e) { fill(at.bans, wrong(e.message)); return }
    if (closed) return
    const shown = all.slice(0, 200)
    fill(at.bans, table(t('Bans and grants'), [{ label: t('Limit') }, { label: t('Key') }, { label: t('Kind') }, { label: t('Until') }, { label: h('span', { class: 'unseen' }, t('Actions')) }],
      shown.map(o => [o.limit, identities ? h('bdi', { class: 'key' }, write(o.key || [])) : h('span', { class: 'soft' }, t('masked')), (o.kind === 'ban' ? t('ban') : t('grant')) + (o.set ? ' ' + Object.entries(o.set).map(([k, v]) => k + '=' + v).join(' ') : ''), clock(o.until),
        h('button', { class: 'light', onclick: async () => { try { await post('/v1/lift', { limit: o.limit, key: o.key || [] }); say(t('Lifted.')) } catch (e) { say(e.message) } bans() } }, t('Lift'))]), t('There are none.')),
    all.length > shown.length && h('p', { class: 'soft small' }, t('and {0} more: weir bans', all.length - shown.length)))
  }

  return {
    update () { if (Date.now() - last > 6000) list() },
    close () { closed = true }
  }
}

// moment writes the time of today, and otherwise the day, too.
const moment = text => Date.now() - Date.parse(text) < 12 * 3600e3 ? new Date(text).toLocaleTimeString(document.documentElement.lang, { hourCycle: 'h23', timeStyle: 'medium' }) : clock(text)
const wrong = text => h('p', { class: 'notice wrong', role: 'alert' }, text)
const fact = (name, value) => [h('dt', {}, name), h('dd', {}, value)]
const sentence = x => x.decided_by === 'ban' ? t('An operator has banned this key.') : x.decided_by === 'grant' ? t('An operator has given this key a grant.')
  : x.decided_by !== 'limit' && x.decided_by !== 'plan' ? t('The limit does not apply to this key.')
    : x.store_problem ? t('The store did not respond: the fallback decides.')
      : x.allowed ? t('A request with a cost of 1 would be admitted now.') : x.waits_ms ? t('A request would wait in the queue of the limit, and then be admitted.') : x.shadow ? t('The limit is a shadow: it would refuse, and does not.') : t('A request with a cost of 1 would be refused now.')

// parse reads a key as the command line does: parts separated by commas, or a JSON array. null is for what is neither.
export function parse (text) {
  if (!text.startsWith('[')) return text.split(',').map(p => p.trim())
  try {
    const parts = JSON.parse(text)
    return Array.isArray(parts) && parts.every(p => typeof p === 'string') ? parts : null
  } catch { return null }
}
// write is the other way round.
export const write = parts => parts.some(p => p !== p.trim() || /[,[\]]/.test(p) || p === '') ? JSON.stringify(parts) : parts.join(',')

export function dialog (title, inside, ok, then) {
  const d = h('dialog', { 'aria-label': title })
  d.append(h('form', { method: 'dialog', onsubmit: () => { d.close(); then() } }, h('h2', {}, title), inside,
    h('div', { class: 'row' }, h('button', { class: 'main', value: 'ok' }, ok), h('button', { type: 'button', onclick: () => d.close() }, t('Cancel')))))
  d.addEventListener('close', () => d.remove())
  document.body.append(d)
  d.showModal()
}
export const confirm = (text, then) => dialog(text, null, t('Yes'), then)
function duration (title, then) {
  const input = h('input', { name: 'for', value: '1h', required: true, pattern: '([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+', 'aria-label': t('For how long') })
  dialog(title, h('label', {}, t('For how long, like 30m, 1h or 7d'), input), t('Apply'), () => then(input.value))
}
