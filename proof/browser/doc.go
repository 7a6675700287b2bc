// Package browser proves what a browser sees: the waiting room in headless Chromium, driven by
// playwright-core, which drive.mjs is given commands for.
package browser
