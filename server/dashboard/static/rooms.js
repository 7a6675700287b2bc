// Waiting rooms: who waits and who is inside, the page that visitors see, and what an operator changes during a sale. A change is one of
// the policy's text, like any other.
import { h, fill, whole, say, clock } from './dom.js'
import { call, get, post } from './api.js'
import { confirm, dialog } from './keys.js'
import { withField } from './edit.js'
import { t, language } from './words.js'

export function open (main, state) {
  const at = { cards: new Map() }
  let closed = false; let last = 0
  fill(main, h('h1', {}, t('Waiting rooms')), at.wrong = h('div', { 'aria-live': 'polite' }), at.all = h('div', { class: 'halves' }))
  load()

  async function load () {
    last = Date.now()
    let rooms
    try { rooms = (await get('/v1/rooms')).rooms } catch (e) { if (!closed) fill(at.wrong, wrong(e.message)); return }
    if (closed) return
    if (rooms.length === 0) { fill(at.all, h('p', { class: 'soft' }, t('The policy has no waiting rooms.'))); at.cards.clear(); return }
    if (rooms.length !== at.cards.size || rooms.some(r => !at.cards.has(r.name))) {
      at.cards = new Map(rooms.map(r => [r.name, card(r.name)]))
      fill(at.all, [...at.cards.values()].map(c => c.element))
    }
    for (const r of rooms) at.cards.get(r.name).show(r)
  }

  // card is a room on the page. Its numbers change; what has the focus does not.
  function card (name) {
    const parts = { tags: h('span'), numbers: h('dl', { class: 'facts' }), actions: h('div', { class: 'row' }), page: h('div') }
    let shown = ''
    const state = h('select', { 'aria-label': t('State of the page') }, [['waiting', t('waiting')], ['before', t('before the opening')], ['kept', t('while the store is down')]].map(([v, text]) => h('option', { value: v }, text)))
    const element = h('section', { class: 'card' }, h('div', { class: 'head' }, h('h2', {}, name), parts.tags), parts.numbers, parts.actions,
      h('div', { class: 'row' }, state, h('button', { onclick: () => preview(name, state.value, parts.page) }, t('Show the page'))), parts.page)
    function show (r) {
      fill(parts.tags, [r.before && t('opens {0}', clock(r.opens)), r.pause && t('paused'), r.drain && t('drained'), r.store].filter(Boolean).map(text => h('span', { class: 'tag' }, text)))
      const v = r.visitors
      fill(parts.numbers, [
        [t('waiting'), whole(r.waiting)], [t('inside'), r.inside_most ? t('{0} of {1}', whole(r.inside), whole(r.inside_most)) : whole(r.inside)], [t('admits'), r.admit],
        [t('came and entered'), whole(v.joined || 0) + ' · ' + whole(v.entered || 0)], [t('lost their place'), whole((v.lapsed || 0) + (v.missed || 0))],
        [t('refused'), whole((v.full || 0) + (v.too_many_joins || 0) + (v.too_many_visitors || 0) + (v.closed || 0))],
        r.store_failures > 0 && [t('store errors'), whole(r.store_failures)], r.announce && [t('announced'), r.announce]
      ].filter(Boolean).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]))
      const now = JSON.stringify([r.pause, r.drain, r.before, r.announce])
      if (now === shown) return
      shown = now
      const act = (text, f) => h('button', { onclick: f, disabled: !tokens() }, text)
      fill(parts.actions,
        r.pause ? act(t('Resume…'), () => confirm(t('Admit visitors to {0} again?', name), () => change(name, { pause: false }))) : act(t('Pause…'), () => confirm(t('Pause {0}? Nobody is admitted, and visitors keep their places.', name), () => change(name, { pause: true }))),
        r.drain ? act(t('Give places again…'), () => confirm(t('Give new places in {0} again?', name), () => change(name, { drain: false }))) : act(t('Drain…'), () => confirm(t('Drain {0}? Nobody gets a new place, and waiting visitors are admitted.', name), () => change(name, { drain: true }))),
        act(t('Announce…'), () => announce(name, r.announce || '')),
        act(t('Opens…'), () => opens(name, r.before ? r.opens : '')),
        !tokens() && h('p', { class: 'small soft' }, t('A policy is taken only by a server with admin.token_file.')))
    }
    return { element, show }
  }
  const tokens = () => state.live?.token

  function announce (name, text) {
    const area = h('textarea', { name: 'announce', rows: 3, maxlength: 500, value: text, 'aria-label': t('What the page says besides') })
    dialog(t('Announce to the visitors of {0}', name), h('label', {}, t('What the page says besides; empty for nothing'), area), t('Apply'), () => change(name, { announce: area.value.trim() || null }))
  }

  function opens (name, text) {
    const local = text ? new Date(Date.parse(text) - new Date(text).getTimezoneOffset() * 60e3).toISOString().slice(0, 16) : ''
    const input = h('input', { type: 'datetime-local', name: 'opens', value: local, 'aria-label': t('Opens at') })
    dialog(t('When does {0} open?', name), [h('label', {}, t('Opens at'), input), h('p', { class: 'small soft' }, t('Everyone who has come by then is drawn by lot. Empty: it is open.'))], t('Apply'),
      () => change(name, { opens: input.value ? new Date(input.value).toISOString().replace('.000', '') : null }))
  }

  // change changes settings of a room in the text of the policy, after the changes before it: each is one of the text that is in force.
  let changed = Promise.resolve()
  function change (name, settings) { changed = changed.then(() => apply(name, settings)) }

  async function apply (name, settings) {
    try {
      const { text, etag } = await call('GET', '/v1/policy', undefined, { Accept: 'application/yaml' })
      let next = text
      for (const [field, value] of Object.entries(settings)) next = next && withField(next, 'waiting_rooms', name, field, value)
      if (!next) { fill(at.wrong, wrong(t('The policy is not written in a way that this page can change: edit it on the page Policy.'))); return }
      await call('PUT', '/v1/policy', next, { 'If-Match': etag })
      fill(at.wrong)
      say(t('The policy is in force.'))
    } catch (e) { fill(at.wrong, wrong(e.message)) }
    load()
  }

  async function preview (name, state, to) {
    try {
      const { path } = await post('/v1/rooms/preview', { room: name, state, language })
      if (!closed) fill(to, h('iframe', { class: 'frame', src: path, title: t('The page of {0}', name), sandbox: true }))
    } catch (e) { fill(to, wrong(e.message)) }
  }

  return {
    update () { if (Date.now() - last > 1900) load() },
    close () { closed = true }
  }
}

const wrong = text => h('p', { class: 'notice wrong', role: 'alert' }, text)
