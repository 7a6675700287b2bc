// Drives a browser for the tests in Go: one command a line, as JSON, and one answer a line. What fails is told, and the next command is read.
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
const pages = new Map()

const commands = {
  // open makes a visitor of its own: cookies, size, colours, language.
  async open ({ page, options, cookies, url }) {
    const context = await browser.newContext(options)
    if (cookies) await context.addCookies(cookies)
    const tab = await context.newPage()
    const seen = { requests: [], complaints: [] }
    tab.on('request', r => seen.requests.push(r.url()))
    tab.on('console', m => { if (/Content Security|Refused|Uncaught/.test(m.text())) seen.complaints.push(m.text()) })
    tab.on('pageerror', e => seen.complaints.push(String(e)))
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
    for (const end = Date.now() + timeout; Date.now() < end; await new Promise(resolve => setTimeout(resolve, 50))) {
      if (await pages.get(page).tab.evaluate(script).catch(() => false)) return true // it fails while the page is loaded again
    }
    throw new Error('never so: ' + script + '\n' + await pages.get(page).tab.locator('body').innerText())
  },
  // press types a text, and then presses keys.
  async press ({ page, text, keys }) {
    const { keyboard } = pages.get(page).tab
    if (text) await keyboard.type(text)
    for (const key of keys) await keyboard.press(key)
    return true
  },
  async text ({ page, selector }) { return pages.get(page).tab.locator(selector).innerText({ timeout: 5000 }) },
  async cookies ({ page }) { return pages.get(page).context.cookies() },
  async shot ({ page, path }) { await pages.get(page).tab.screenshot({ path }); return true },
  async seen ({ page }) { return pages.get(page).seen },
  async close ({ page }) { await pages.get(page).context.close(); pages.delete(page); return true }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer
  try {
    const command = JSON.parse(line)
    answer = { result: await commands[command.do](command) }
  } catch (e) {
    answer = { error: String(e) }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
await browser.close()
