// What the limits have counted, as rates: every two seconds for a quarter of an hour, and every minute for a day. The memory has a bound,
// however long the page is open and however many limits there are.

export const fields = ['allowed', 'delayed', 'limited', 'errors']
const most = 200 // limits with a history of their own; the sum of all has one, too

class Ring {
  constructor (size, step) {
    this.size = size
    this.step = step // milliseconds
    this.times = new Float64Array(size)
    this.values = fields.map(() => new Float32Array(size))
    this.count = 0
  }

  push (time, rates) {
    const at = this.count++ % this.size
    this.times[at] = time
    rates.forEach((r, i) => { this.values[i][at] = r })
  }

  // last returns the readings since a moment, the oldest first.
  last (since) {
    const out = { times: [], values: fields.map(() => []) }
    for (let i = Math.max(0, this.count - this.size); i < this.count; i++) {
      const at = i % this.size
      if (this.times[at] < since) continue
      out.times.push(this.times[at])
      out.values.forEach((list, f) => list.push(this.values[f][at]))
    }
    return out
  }
}

class Series {
  constructor () {
    this.fine = new Ring(450, 2000)
    this.coarse = new Ring(1440, 60000)
    this.from = null // of the minute that is being counted
  }

  add (time, counts) {
    if (this.before && time > this.before.time) {
      const rates = rate(this.before, { time, counts })
      this.fine.push(time, rates)
      this.latest = rates
    }
    this.before = { time, counts }
    if (!this.from) this.from = this.before
    if (time - this.from.time >= this.coarse.step) {
      this.coarse.push(time, rate(this.from, this.before))
      this.from = this.before
    }
  }
}

// A server that has started again counts from 0: what it has counted since then is all that is known.
const rate = (a, b) => b.counts.map((n, i) => (n < a.counts[i] ? n : n - a.counts[i]) * 1000 / (b.time - a.time))

export class History {
  constructor () {
    this.total = new Series()
    this.limits = new Map()
  }

  // add takes a reading of /v1/live.
  add (live) {
    const sum = [0, 0, 0, 0]
    const seen = new Set()
    for (const l of live.limits) {
      const counts = [l.allowed + l.granted + l.exempt, l.delayed, l.limited + l.banned, l.errors]
      const name = id(l)
      seen.add(name)
      if (!l.shadow && !l.rest) counts.forEach((n, i) => { sum[i] += n })
      let series = this.limits.get(name)
      if (!series && this.limits.size < most) this.limits.set(name, series = new Series())
      series?.add(live.now_ms, counts)
    }
    for (const name of this.limits.keys()) if (!seen.has(name)) this.limits.delete(name)
    this.total.add(live.now_ms, sum)
  }
}

// id tells a limit apart from the shadow of its roll_out, which has the same name.
export const id = l => l.name + (l.rest ? ' (rest)' : '')
