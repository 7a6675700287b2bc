// Plans and usage: what a customer or a key has used of each limit, what is left, and when it is back.
import { h, fill, table, whole, clock } from './dom.js'
import { get } from './api.js'
import { parse } from './keys.js'
import { t } from './words.js'

export function open (main) {
  const at = {}
  fill(main,
    h('h1', {}, t('Usage')),
    h('section', { class: 'card' },
      h('form', { class: 'line', onsubmit: e => { e.preventDefault(); find() } },
        h('label', {}, t('Customer or key'), at.key = h('input', { name: 'key', required: true, size: 30, autocomplete: 'off', spellcheck: 'false' })),
        h('label', {}, t('Plan (optional)'), at.plan = h('input', { name: 'plan', size: 14, autocomplete: 'off' })),
        h('button', { class: 'main' }, t('Show'))),
      h('p', { class: 'small soft' }, t('Separate the parts of a key by commas, or write a JSON array. All limits with a key of as many parts are shown.')),
      at.found = h('div', { 'aria-live': 'polite' })))

  async function find () {
    const key = parse(at.key.value.trim())
    if (key === null) { fill(at.found, h('p', { class: 'notice wrong', role: 'alert' }, t('This is not a JSON array of texts.'))); return }
    try {
      const { usage } = await get('/v1/usage', { key, plan: at.plan.value.trim() })
      fill(at.found, table(t('Usage of {0}', at.key.value.trim().slice(0, 200)), [{ label: t('Limit') }, { label: t('Plan') }, { label: t('used'), number: true }, { label: t('of'), number: true }, { label: h('span', { class: 'unseen' }, t('Share')) }, { label: t('left'), number: true }, { label: t('all is back at') }, { label: t('admitted again at'), late: true }],
        usage.map(u => [[u.limit, u.shadow && h('span', { class: 'tag' }, t('shadow'))], u.plan || '–', u.error ? h('span', { class: 'bad' }, u.error) : whole(u.used), u.unlimited ? t('unlimited') : whole(u.allowed),
          h('progress', { class: 'bar', max: Math.max(1, u.allowed), value: u.unlimited ? 0 : Math.min(u.used, u.allowed), 'aria-label': t('used') }), u.unlimited ? '–' : whole(u.remaining), u.reset_at ? clock(u.reset_at) : '–', u.next_at ? clock(u.next_at) : t('now')])))
    } catch (e) { fill(at.found, h('p', { class: 'notice wrong', role: 'alert' }, e.message)) }
  }
  return {}
}
