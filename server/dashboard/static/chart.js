// Charts as SVG: stacked areas over time, and small lines beside a row.
const ns = 'http://www.w3.org/2000/svg'
const s = (tag, attributes, ...children) => {
  const e = document.createElementNS(ns, tag)
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value)
  e.append(...children)
  return e
}

// nice is the next round number for the end of an axis.
export function nice (n) {
  if (!(n > 0)) return 1
  const power = 10 ** Math.floor(Math.log10(n))
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= n) return step * power
}

// areas draws series on top of each other. label is what a reader of the screen hears; number and time write values.
export function areas ({ times, series, from, to, label, number, time, width = 900, height = 210 }) {
  const left = 46; const right = 6; const top = 8; const bottom = 22
  const w = width - left - right; const hgt = height - top - bottom
  const sums = times.map((_, i) => series.reduce((sum, v) => sum + v[i], 0))
  const end = nice(Math.max(...sums, 0))
  const x = at => left + w * (at - from) / Math.max(1, to - from)
  const y = n => top + hgt * (1 - n / end)
  const svg = s('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label })
  for (let i = 0; i <= 4; i++) {
    const n = end * i / 4
    svg.append(s('line', { class: 'grid', x1: left, x2: width - right, y1: y(n), y2: y(n) }), s('text', { x: left - 8, y: y(n) + 4, 'text-anchor': 'end' }, number(n)))
  }
  const marks = Math.max(2, Math.round(w / 150))
  for (let i = 0; i <= marks; i++) {
    const at = from + (to - from) * i / marks
    svg.append(s('text', { x: x(at), y: height - 5, 'text-anchor': i === 0 ? 'start' : i === marks ? 'end' : 'middle' }, time(at)))
  }
  const base = times.map(() => 0)
  series.forEach((values, n) => {
    if (times.length < 2) return
    const upper = values.map((v, i) => base[i] + v)
    const points = upper.map((v, i) => x(times[i]).toFixed(1) + ' ' + y(v).toFixed(1))
    const lower = base.map((v, i) => x(times[i]).toFixed(1) + ' ' + y(v).toFixed(1)).reverse()
    svg.append(s('path', { class: 'a' + n, d: 'M' + points.join('L') + 'L' + lower.join('L') + 'Z' }))
    upper.forEach((v, i) => { base[i] = v })
  })
  return svg
}

// spark draws one series as a line, for a row of a table. What it shows is in the row in numbers, too.
export function spark (values, width = 96, height = 22) {
  const end = Math.max(...values, 1e-9)
  const points = values.map((v, i) => (width * i / Math.max(1, values.length - 1)).toFixed(1) + ' ' + (height - 2 - (height - 4) * v / end).toFixed(1))
  return s('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' }, s('path', { d: points.length > 1 ? 'M' + points.join('L') : '' }))
}
