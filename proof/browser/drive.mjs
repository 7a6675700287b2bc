// Drives a browser for the tests in Go: one command a line, as JSON, and one answer a line. What fails is told, and the next command is read.
// A browser can lose a command, without an error and for good: on a busy machine, one test waited so for 18 minutes. So each has its time.
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'

const patience = Number(process.env.PATIENCE) // in milliseconds

// within returns what a promise does, or throws if that takes longer than some milliseconds.
async function within (ms, what, promise) {
  let timer
  const late = new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error(`the browser has not answered for ${ms / 1000} s: ${what}`)), ms) })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu'], timeout: patience })
const pages = new Map()

const commands = {
  // open makes a visitor of its own: cookies, size, colours, language.
  async open ({ page, options, cookies, url }) {
    const { context, tab } = await visitor(options)
    tab.setDefaultTimeout(patience / 2)
    if (cookies) await context.addCookies(cookies)
    const seen = { requests: [], complaints: [] }
    tab.on('request', r => seen.requests.push(r.url()))
    tab.on('console', m => { if (/Content Security|Refused|Uncaught/.test(m.text())) seen.complaints.push(m.text()) })
    tab.on('pageerror', e => seen.complaints.push(String(e)))
    tab.on('crash', () => seen.complaints.push('the page crashed'))
    pages.set(page, { context, tab, seen })
    return commands.go({ page, url })
  },
  async go ({ page, url }) {
    const answer = await pages.get(page).tab.goto(url, { waitUntil: 'load' })
    return { status: answer.status() }
  },
  async run ({ page, script }) { return pages.get(page).tab.evaluate(script) },
  async until ({ page, script, timeout }) {
    // waitForFunction would need the page to allow eval, which it does not.
    let last
    for (const end = Date.now() + timeout; Date.now() < end; await new Promise(resolve => setTimeout(resolve, 50))) {
      try {
        last = undefined
        if (await within(timeout / 4, script, pages.get(page).tab.evaluate(script))) return true
      } catch (e) { // it fails while the page is loaded again
        last = e
      }
    }
    throw new Error('never so: ' + script + '\n' + (last ?? '') + '\n' + await pages.get(page).tab.locator('body').innerText({ timeout: 5000 }).catch(e => String(e)))
  },
  // press types a text, and then presses keys.
  async press ({ page, text, keys }) {
    const { keyboard } = pages.get(page).tab
    if (text) await keyboard.type(text)
    for (const key of keys) await keyboard.press(key)
    return true
  },
  async text ({ page, selector }) { return pages.get(page).tab.locator(selector).innerText() },
  async cookies ({ page }) { return pages.get(page).context.cookies() },
  async shot ({ page, path }) { await pages.get(page).tab.screenshot({ path }); return true },
  async seen ({ page }) { return pages.get(page).seen },
  async close ({ page }) {
    const { context } = pages.get(page)
    pages.delete(page)
    // Nothing depends on it: the browser is closed later, with all its visitors.
    await within(patience / 8, 'close a visitor', context.close()).catch(e => console.error(String(e)))
    return true
  }
}

// visitor opens an empty tab of a new visitor. That asks no server for anything, so it is tried again.
async function visitor (options) {
  for (let tries = 1; ; tries++) {
    try {
      const open = async () => { const context = await browser.newContext(options); return { context, tab: await context.newPage() } }
      return await within(patience / 4, 'open a tab', open())
    } catch (e) {
      if (tries === 3) throw e
      console.error(String(e))
    }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer
  try {
    const command = JSON.parse(line)
    answer = { result: await within(patience * 2, line.slice(0, 500), commands[command.do](command)) }
  } catch (e) {
    answer = { error: String(e) }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
await within(patience / 4, 'close', browser.close()).catch(e => console.error(String(e)))
process.exit() // it kills a browser that does not close, and removes its files
