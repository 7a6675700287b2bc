// The admin API. The token is kept for this tab alone, and sent in a header, which no other page can make a browser send.
import { t } from './words.js'

const place = 'weir-token'
let token = sessionStorage.getItem(place) || ''

export class Refused extends Error {
  constructor (status, body) {
    super(body.detail || body.title || t('The server responded {0}.', status))
    this.status = status
    this.problems = body.problems || []
  }
}

export function setToken (text) {
  token = text.trim()
  if (token) sessionStorage.setItem(place, token)
  else sessionStorage.removeItem(place)
}
export const hasToken = () => token !== ''

// call sends a request and returns the response's JSON. A body that is a string is a policy in YAML.
export async function call (method, path, body, headers = {}) {
  const limit = new AbortController()
  const end = setTimeout(() => limit.abort(), 30000)
  try {
    const answer = await fetch(path, {
      method,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      signal: limit.signal,
      headers: {
        ...(token && { Authorization: 'Bearer ' + token }),
        ...(method !== 'GET' && { 'Content-Type': typeof body === 'string' ? 'application/yaml' : 'application/json' }),
        ...headers
      },
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
    })
    if (headers.Accept === 'application/yaml' && answer.ok) return { text: await answer.text(), etag: answer.headers.get('ETag'), type: answer.headers.get('Content-Type') }
    const text = await answer.text()
    let json = {}
    try { json = JSON.parse(text) } catch { json = { detail: text.slice(0, 300) } }
    if (!answer.ok) throw new Refused(answer.status, json)
    return json
  } catch (e) {
    if (e instanceof Refused) throw e
    throw new Error(t('The server does not respond.'))
  } finally { clearTimeout(end) }
}
// get reads a path. A parameter that is empty is left out; of a list, which is a key, an empty part is one, too.
export const get = (path, query = {}) => {
  const q = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) for (const v of [value].flat()) if (v != null && (v !== '' || Array.isArray(value))) q.append(name, v)
  return call('GET', path + (q.size ? '?' + q : ''))
}
export const post = (path, body = {}, headers = {}) => call('POST', path, body, headers)
