package room

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strconv"
	"strings"
)

//go:embed page.html
var builtInPage string

//go:embed page.js
var pageScript string

// Page is the data of a page template: {{.Title}} and so on. A template needs Head and Script. The
// script updates the elements with the ids weir-place, weir-ahead, weir-wait, weir-status and
// weir-done (a progress element), if there are any.
type Page struct {
	Lang     string        // of the texts: en, de, es, fr
	Title    string        // the policy's, or a built-in one in Lang
	Text     string        // the same
	State    string        // waiting; kept: the place is kept, but currently unknown; before: the room has not opened yet
	Place    string        // in the queue, from 1, formatted for people
	Ahead    string        // visitors ahead of this one
	Wait     string        // the expected wait, like: about 5 minutes
	Status   string        // a sentence about the current state; may be empty
	Done     int64         // progress since the visitor joined, in percent
	Notice   string        // why the visitor is at the end of the queue again; usually empty
	Announce string        // what the operator announces; usually empty
	Keep     string        // what happens when the page is closed
	Refresh  int64         // seconds after which the page reloads without a script
	Nonce    string        // for style and script elements: <style nonce="{{.Nonce}}">
	Head     template.HTML // for the head: character set, reload without a script, no indexing
	Script   template.HTML // for the end of the body

	// Labels.
	PlaceLabel, AheadLabel, WaitLabel string
}

// parsePage parses a page and executes it once, so that its errors are reported at the start.
func parsePage(own []byte) (*template.Template, error) {
	text := builtInPage
	if own != nil {
		text = string(own)
	}
	t, err := template.New("page").Option("missingkey=error").Parse(text)
	if err == nil {
		err = t.Execute(io.Discard, Page{})
	}
	if err != nil {
		return nil, fmt.Errorf("the page of the waiting room: %w", err)
	}
	return t, nil
}

// showPage writes the page.
func (v *visit) showPage(t reply) {
	w := v.language()
	l := v.lines(t)
	nonce := rand.Text()
	p := Page{
		Lang: w.lang, Title: w.title, Text: w.text, State: t.State, Place: l.Place, Ahead: l.Ahead, Wait: l.Wait, Status: l.Status, Done: l.Done,
		Keep: strings.Replace(w.keep, "%s", w.span(v.room.settings.PollTimeout), 1), Refresh: seconds(t.PollAfter), Nonce: nonce,
		PlaceLabel: w.place, AheadLabel: w.ahead, WaitLabel: w.wait,
	}
	p.Announce = v.room.settings.Announce
	if t.State == "before" {
		p.Title, p.Text, p.AheadLabel, p.WaitLabel = w.early, w.opening, w.here, w.opens
	}
	if v.room.settings.Title != "" {
		p.Title = v.room.settings.Title
	}
	if v.room.settings.Text != "" {
		p.Text = v.room.settings.Text
	}
	if v.ticketRefusal != "" {
		p.Notice = w.refused
	}
	p.Head = template.HTML(fmt.Sprintf(`<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">`+
		`<meta name="robots" content="noindex"><noscript><meta http-equiv="refresh" content="%d"></noscript>`, p.Refresh))
	p.Script = template.HTML(fmt.Sprintf(`<script nonce="%s" data-after="%d" data-state="%s" data-turn="%s" data-cookies="%s" data-place="%s" data-wait="%s">%s</script>`,
		nonce, p.Refresh, p.State, template.HTMLEscapeString(w.turn), template.HTMLEscapeString(w.cookies), template.HTMLEscapeString(p.PlaceLabel),
		template.HTMLEscapeString(p.WaitLabel), pageScript))
	if v.isPreview {
		p.Head, p.Script = `<meta charset="utf-8">`, ""
	}
	var body bytes.Buffer
	if err := v.room.page.Execute(&body, p); err != nil {
		v.room.log.Error("waiting room: its page cannot be shown", "room", v.room.settings.Name, "error", err)
		body.Reset()
		body.WriteString(p.Title)
	}
	h := v.w.Header()
	if t.ticket != nil {
		v.setTicket(h, *t.ticket)
	}
	v.setHeaders(t.State)
	h.Set("Retry-After", strconv.FormatInt(p.Refresh, 10))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", w.lang)
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self' 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+"'; img-src 'self' data:; font-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
	v.w.WriteHeader(v.room.status())
	if v.req.Method != http.MethodHead {
		v.w.Write(body.Bytes())
	}
}
