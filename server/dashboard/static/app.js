// The frame of the pages: which page is shown, the token, the language, and one reading of the server every two seconds.
import { h, fill, say } from './dom.js'
import { get, setToken, hasToken, Refused } from './api.js'
import { t, language, languages, setLanguage } from './words.js'
import { History } from './history.js'
import { Latencies } from './latency.js'
import * as overview from './overview.js'
import * as keys from './keys.js'
import * as policy from './policy.js'
import * as usage from './usage.js'
import * as rooms from './rooms.js'

const every = 2000
const pages = { overview, keys, policy, rooms, usage }
export const history = new History()
const latencies = new Latencies()
const state = { history, latencies, live: null, page: null, name: '' }
const main = document.getElementById('main')
let timer; let asking = false; let down = false

const names = () => ({ overview: t('Overview'), keys: t('Keys'), policy: t('Policy'), rooms: t('Waiting rooms'), usage: t('Usage') })

function frame () {
  document.getElementById('skip').textContent = t('Skip to the content')
  const nav = document.getElementById('nav')
  nav.setAttribute('aria-label', t('Pages'))
  fill(nav, Object.entries(names()).map(([name, text]) => h('a', { href: '#/' + name, 'aria-current': name === state.name && 'page' }, text)))
  fill(document.getElementById('who'),
    h('select', { 'aria-label': t('Language'), onchange: e => { setLanguage(e.target.value); show() } },
      Object.entries(languages).map(([code, name]) => h('option', { value: code, selected: code === language, lang: code }, name))),
    hasToken() && h('button', { class: 'light', onclick: leave }, t('Sign out')))
}

// show builds the page that the address names.
function show () {
  const [, name, rest] = location.hash.split('/')
  state.name = Object.hasOwn(pages, name) ? name : 'overview'
  try { state.rest = decodeURIComponent(rest || '') } catch { state.rest = '' } // a link that somebody has written
  document.title = names()[state.name] + ' · Weir'
  frame()
  state.page?.close?.()
  state.page = pages[state.name].open(main, state)
  if (state.live) state.page.update?.(state.live)
}

function leave () {
  setToken('')
  clearTimeout(timer)
  state.live = null
  state.page?.close?.()
  state.page = null
  enter('')
}

// enter asks for the token.
function enter (wrong) {
  state.name = ''
  document.title = t('Sign in') + ' · Weir'
  frame()
  document.getElementById('nav').replaceChildren()
  const input = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, autofocus: true, 'aria-describedby': 'why' })
  fill(main, h('form', {
    class: 'card enter',
    onsubmit: e => { e.preventDefault(); setToken(input.value); start() }
  }, h('h1', {}, t('Sign in')), h('label', {}, t('Token'), input),
  h('p', { class: 'small ' + (wrong ? 'bad' : 'soft'), id: 'why', role: wrong && 'alert' }, wrong || t('It is in the file that admin.token_file of the policy names. It stays in this tab.')),
  h('div', {}, h('button', { class: 'main' }, t('Sign in')))))
  input.focus()
}

// read takes one reading. It reports whether it could.
async function read () {
  try {
    const live = await get('/v1/live')
    state.live = live
    history.add(live)
    latencies.add(live)
    if (down) say(t('The server responds again.'))
    down = false
    return true
  } catch (e) {
    if (e instanceof Refused && e.status === 401) {
      const wrong = hasToken() && t('This token is not the one of the server.')
      setToken('')
      state.page?.close?.()
      state.page = null
      enter(wrong)
      return false
    }
    if (!down) say(e.message)
    down = true
    return true
  }
}

async function tick () {
  if (asking) return
  asking = true
  const goes = await read()
  asking = false
  if (!goes) return
  if (state.live && !state.page) show()
  else if (state.live && !down) state.page.update?.(state.live)
  document.body.classList.toggle('down', down)
  clearTimeout(timer)
  timer = setTimeout(tick, document.hidden ? every * 5 : every)
}

function start () { clearTimeout(timer); tick() }

window.addEventListener('hashchange', () => { if (state.live && location.hash.startsWith('#/')) { show(); scrollTo(0, 0); main.focus({ preventScroll: true }) } })
document.getElementById('skip').addEventListener('click', e => { e.preventDefault(); main.focus() })
frame()
fill(main, h('p', { class: 'soft' }, '…'))
start()
