// Package browser tests what a browser shows: the waiting room in headless Chromium, controlled by
// playwright-core through the commands of drive.mjs.
package browser
