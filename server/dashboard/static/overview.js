// The overview: how much is admitted, delayed and refused now, by limit, and the state of the stores.
import { h, fill, table, number, whole, clock } from './dom.js'
import { areas, spark } from './chart.js'
import { id } from './history.js'
import { duration } from './latency.js'
import { t, language } from './words.js'

const windows = { 5: 5 * 60e3, 15: 15 * 60e3, 60: 3600e3, 1440: 24 * 3600e3 }
let minutes = '5'

export function open (main, state) {
  const at = {}
  const part = name => (at[name] = h('div'))
  const choose = Object.keys(windows).map(m => h('button', { 'aria-pressed': String(m === minutes), onclick: e => press(m, e.target) }, m < 60 ? t('{0} min', m) : t('{0} h', m / 60)))
  function press (m, button) {
    minutes = m
    choose.forEach(b => b.setAttribute('aria-pressed', String(b === button)))
    if (state.live) update(state.live)
  }
  fill(main,
    h('div', { class: 'head' }, h('h1', {}, t('Overview')), at.policy = h('p', { class: 'soft small' })),
    at.tiles = h('dl', { class: 'tiles' }),
    h('section', { class: 'card', 'aria-label': t('Decisions per second') },
      h('div', { class: 'head' }, h('h2', {}, t('Decisions per second')), h('div', { class: 'row', role: 'group', 'aria-label': t('Period') }, choose)),
      part('chart'),
      h('ul', { class: 'legend' }, [t('admitted'), t('delayed'), t('refused')].map((text, i) => h('li', {}, h('i', { class: 'l' + i }), text)))),
    h('section', { class: 'card' }, part('limits')),
    at.more = h('div', { class: 'halves' }))

  function update (live) {
    const total = state.history.total
    const rates = total.latest || [0, 0, 0, 0]
    const sum = rates[0] + rates[1] + rates[2]
    fill(at.policy, live.file || t('demo'), ' · ', t('in force since {0}', clock(live.since)), live.from === 'api' ? ' · ' + t('sent over the API') : '')
    fill(at.tiles, [
      [t('admitted'), rates[0]], [t('delayed'), rates[1]], [t('refused'), rates[2], sum > 0 && (100 * rates[2] / sum).toFixed(1) + ' %'], [t('store errors'), rates[3]]
    ].map(([name, n, more]) => tile(name, number(n), h('small', {}, ' /s', more && ' · ' + more))),
    tile(t('a decision takes'), duration(state.latencies.quantile('', 0.5)), h('small', { class: 'line' }, t('99 %: {0}', duration(state.latencies.quantile('', 0.99))))))
    drawChart(live)
    const since = live.now_ms - 120e3
    fill(at.limits, table(t('Limits'), [
      { label: t('Limit') }, { label: t('Rule'), late: true }, { label: t('admitted/s'), number: true }, { label: t('delayed/s'), number: true }, { label: t('refused/s'), number: true },
      { label: t('refused'), number: true }, { label: t('errors/s'), number: true, late: true }, { label: t('waiting'), number: true, late: true }, { label: t('keys'), number: true, late: true }, { label: t('refused, 2 min'), late: true }
    ], live.limits.map(l => {
      const series = state.history.limits.get(id(l))
      const r = series?.latest || [0, 0, 0, 0]
      const all = r[0] + r[1] + r[2]
      return [
        [l.rest ? l.name : h('a', { href: '#/keys/' + encodeURIComponent(l.name) }, l.name), (l.shadow || l.rest) && h('span', { class: 'tag' }, t('shadow')), l.roll_out && !l.rest && h('span', { class: 'tag' }, l.roll_out), l.store && h('span', { class: 'tag' }, l.store)],
        h('span', { class: 'mono soft' }, l.algorithm + ' ' + l.rule), number(r[0]), number(r[1]), number(r[2]),
        all > 0 ? (100 * r[2] / all).toFixed(1) + ' %' : '–', number(r[3]), whole(l.waiting), whole(l.keys), series ? spark(series.fine.last(since).values[2]) : '–'
      ]
    }), t('The policy has no limits.')))
    fill(at.more, stores(live, state.latencies), adaptive(live))
  }

  function drawChart (live) {
    const long = Number(minutes) > 15
    const length = windows[minutes]
    const ring = long ? state.history.total.coarse : state.history.total.fine
    const data = ring.last(live.now_ms - length)
    const time = at => new Date(at).toLocaleTimeString(language, long ? { hourCycle: 'h23', hour: '2-digit', minute: '2-digit' } : { hourCycle: 'h23', hour: '2-digit', minute: '2-digit', second: '2-digit' })
    const latest = state.history.total.latest || [0, 0, 0]
    fill(at.chart, areas({
      times: data.times,
      series: data.values.slice(0, 3),
      from: live.now_ms - length,
      to: live.now_ms,
      number,
      time,
      width: Math.max(320, Math.min(1240, at.chart.clientWidth || 900)),
      label: t('Decisions per second: {0} admitted, {1} delayed, {2} refused', number(latest[0]), number(latest[1]), number(latest[2]))
    }), data.times.length < 2 && h('p', { class: 'soft small' }, t('The chart begins when this page is opened.')))
  }
  return { update }
}

const tile = (name, value, ...more) => h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, value, ...more))

function stores (live, latencies) {
  if (live.stores.length === 0) return null
  return h('section', { class: 'card' }, table(t('Stores'), [
    { label: t('Store') }, { label: t('State') }, { label: t('Breaker') }, { label: t('answered'), number: true }, { label: t('late'), number: true }, { label: t('failed'), number: true }, { label: t('skipped'), number: true }, { label: t('half take'), number: true }, { label: t('99 % take'), number: true }
  ], live.stores.map(s => [
    s.name,
    [h('span', { class: s.unavailable ? 'bad' : 'good' }, s.unavailable === 0 ? t('up') : s.unavailable < s.shards ? t('{0} of {1} shards down', s.unavailable, s.shards) : t('down')), s.error && h('div', { class: 'small soft' }, s.error)],
    { closed: t('closed'), open: t('open'), 'partly open': t('partly open') }[s.breaker], whole(s.answered), whole(s.late), whole(s.failed), whole(s.skipped), ...[0.5, 0.99].map(q => duration(latencies.quantile('store ' + s.name, q)))
  ])))
}

function adaptive (live) {
  if (live.adaptive.length === 0) return null
  return h('section', { class: 'card' }, table(t('Adaptive limits'), [
    { label: t('Limit') }, { label: t('in force'), number: true }, { label: t('in flight'), number: true }, { label: t('dropped'), number: true }, { label: t('refused'), number: true }
  ], live.adaptive.map(a => [a.target ? a.limit + ' ' + a.target : a.limit, whole(a.now), whole(a.in_flight), whole(a.dropped), whole(a.refused)])))
}
