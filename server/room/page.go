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
var ourPage string

//go:embed page.js
var pageScript string

// Page is what a page of the operator's own may use: {{.Title}} and so on. It needs Head and Script, and elements with the ids weir-place,
// weir-ahead, weir-wait, weir-status and weir-done (a progress element), as far as it has them: the script keeps them up to date.
type Page struct {
	Lang    string        // of the texts: en, de, es, fr
	Title   string        // the policy's, or one in Lang
	Text    string        // the same
	State   string        // waiting, or kept: the place is kept, and cannot be told right now
	Place   string        // in line, from 1, as people write it
	Ahead   string        // how many are before the visitor
	Wait    string        // the expected wait, like: about 5 minutes
	Status  string        // a sentence about how it stands; may be empty
	Done    int64         // of the way from where the visitor began, in hundredths
	Notice  string        // why the visitor is at the end of the line again; mostly empty
	Keep    string        // what becomes of a page that is closed
	Refresh int64         // after how many seconds the page refreshes itself without a script
	Nonce   string        // for style and script elements: <style nonce="{{.Nonce}}">
	Head    template.HTML // for the head: the character set, the refresh without a script, and no indexing
	Script  template.HTML // for the end of the body

	// Labels.
	PlaceLabel, AheadLabel, WaitLabel string
}

// parsePage reads a page and tries it once: what is wrong with it is told before it is needed.
func parsePage(own []byte) (*template.Template, error) {
	text := ourPage
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
func (v *visit) showPage(t told) {
	w := v.language()
	l := w.lines(t)
	nonce := rand.Text()
	p := Page{
		Lang: w.lang, Title: w.title, Text: w.text, State: t.State, Place: l.Place, Ahead: l.Ahead, Wait: l.Wait, Status: l.Status, Done: l.Done,
		Keep: strings.Replace(w.keep, "%s", w.span(v.room.def.Lapse), 1), Refresh: seconds(t.PollAfter), Nonce: nonce,
		PlaceLabel: w.place, AheadLabel: w.ahead, WaitLabel: w.wait,
	}
	if v.room.def.Title != "" {
		p.Title = v.room.def.Title
	}
	if v.room.def.Text != "" {
		p.Text = v.room.def.Text
	}
	if v.why != "" {
		p.Notice = w.refused
	}
	p.Head = template.HTML(fmt.Sprintf(`<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">`+
		`<meta name="robots" content="noindex"><noscript><meta http-equiv="refresh" content="%d"></noscript>`, p.Refresh))
	p.Script = template.HTML(fmt.Sprintf(`<script nonce="%s" data-after="%d" data-turn="%s" data-cookies="%s" data-place="%s" data-wait="%s">%s</script>`,
		nonce, p.Refresh, template.HTMLEscapeString(w.turn), template.HTMLEscapeString(w.cookies), template.HTMLEscapeString(w.place),
		template.HTMLEscapeString(w.wait), pageScript))
	var body bytes.Buffer
	if err := v.room.page.Execute(&body, p); err != nil {
		v.room.log.Error("waiting room: its page cannot be shown", "room", v.room.def.Name, "error", err)
		body.Reset()
		body.WriteString(p.Title)
	}
	h := v.w.Header()
	if t.ticket != nil {
		v.give(h, *t.ticket)
	}
	v.headers(t.State)
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
