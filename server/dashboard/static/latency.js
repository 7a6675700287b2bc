// How long decisions and calls of stores took in the last two minutes, from the buckets of histograms that count since the server began.
const span = 120e3
const most = 200 // names

export class Latencies {
  constructor () { this.all = new Map() }

  // add takes the histograms of a reading of /v1/live.
  add (live) {
    const seen = new Set()
    const one = (name, latency) => {
      if (!latency) return
      seen.add(name)
      let readings = this.all.get(name)
      if (!readings) {
        if (this.all.size >= most) return
        this.all.set(name, readings = [])
      }
      const last = readings[readings.length - 1]
      if (last && latency.counts.at(-1) < last.counts.at(-1)) readings.length = 0 // the server began again
      readings.push({ time: live.now_ms, ...latency })
      while (readings.length > 2 && (readings[1].time <= live.now_ms - span || readings.length > 200)) readings.shift()
    }
    one('', live.decision_latency)
    for (const s of live.stores) one('store ' + s.name, s.latency)
    for (const name of this.all.keys()) if (!seen.has(name)) this.all.delete(name)
  }

  // quantile returns how long a share of them took at most, in seconds; null if there was none.
  quantile (name, share) {
    const readings = this.all.get(name)
    if (!readings?.length) return null
    const now = readings[readings.length - 1]
    const before = readings.length > 1 && readings[0].counts.at(-1) < now.counts.at(-1) ? readings[0] : null
    const counts = now.counts.map((n, i) => n - (before ? before.counts[i] : 0))
    const rank = share * counts.at(-1)
    if (!(rank > 0)) return null
    const i = counts.findIndex(n => n >= rank)
    if (i >= now.seconds.length) return Infinity // above all bounds
    const from = i ? now.seconds[i - 1] : 0
    const below = i ? counts[i - 1] : 0
    return from + (now.seconds[i] - from) * (rank - below) / (counts[i] - below)
  }
}

// duration writes seconds with two digits.
export function duration (s) {
  if (s == null) return '–'
  if (s === Infinity) return '> 1 s'
  for (const [size, unit] of [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']]) {
    const n = Number((s / size).toPrecision(2))
    if (n >= 1 || unit === 'ns') return n + ' ' + unit
  }
}
