
(() => {
  const own = document.currentScript.dataset
  const at = id => document.getElementById(id)
  const put = (id, text) => { const e = at(id); if (e && e.textContent !== text) e.textContent = text }
  let timer, asking, last = 0, said = 0
  const title = document.title
  const later = seconds => { clearTimeout(timer); timer = setTimeout(ask, seconds * 1000) }
  const show = text => {
    put('weir-place', text.place)
    put('weir-ahead', text.ahead)
    put('weir-wait', text.wait)
    put('weir-status', text.status)
    put('weir-announce', text.announce || '')
    const done = at('weir-done')
    if (done) done.value = text.done
    if (Date.now() - said > 30000) { // who hears the page is not told each step
      said = Date.now()
      put('weir-said', own.place + ': ' + text.place + '. ' + own.wait + ': ' + text.wait)
    }
  }
  async function ask() {
    if (asking) return
    asking = true
    last = Date.now()
    let after = 15
    const limit = new AbortController()
    const end = setTimeout(() => limit.abort(), 20000)
    try {
      const answer = await fetch(location.pathname + location.search, {
        headers: { Accept: 'application/json', 'Weir-Room': 'poll' }, cache: 'no-store', credentials: 'same-origin', signal: limit.signal
      })
      const state = answer.headers.get('Weir-Room')
      if (own.state === 'before' && state === 'waiting') { // it has opened
        clearTimeout(end)
        location.reload()
        return
      }
      if (state === 'waiting' || state === 'kept' || state === 'before') {
        const told = await answer.json()
        if (told.place || state === 'before') show(told.text)
        else put('weir-status', told.text.status) // what was shown last is as good as anything
        if (told.place) document.title = '(' + told.text.place + ') ' + title
        after = told.poll_after || after
      } else if (state === 'too_often') {
        after = Number(answer.headers.get('Retry-After')) || after
      } else if (answer.status < 500 || state) { // it is our turn, or there is no room any more, or the place is lost: the page says it
        if (state === 'admitted') put('weir-status', own.turn)
        clearTimeout(end)
        location.reload()
        return
      }
    } catch (e) { /* without a network: later */ }
    clearTimeout(end)
    asking = false
    later(after)
  }
  if (!navigator.cookieEnabled) {
    put('weir-status', own.cookies)
    return
  }
  document.addEventListener('visibilitychange', () => { // timers of what nobody sees may have slept
    if (!document.hidden && Date.now() - last > 5000) ask()
  })
  later(Number(own.after) || 15)
})()
