package httpapi

import (
	"encoding/json"
	"strconv"
)

// Most calls are short, and written plainly. Those are read and answered here, in a tenth of the time that
// package json takes; all others by package json. Both read the same, and write the same.

// maxQuick is the longest body that is read here, in bytes: what is read keeps all of it in memory.
const maxQuick = 4 << 10

// quickAsking reads the body of take, peek and reserve. It reports false for one that is not valid, and for
// one that it leaves to decode: with escapes, letters beyond ASCII, null, other numbers than short whole
// ones, or names of fields in capital letters.
func quickAsking(data []byte) (of asking, ok bool) {
	if len(data) > maxQuick {
		return of, false
	}
	r := quickReader{text: string(data)}
	ok = r.ask(&of.ask, &of)
	r.space()
	return of, ok && r.at == len(r.text)
}

// quickReader is a place in a text.
type quickReader struct {
	text string
	at   int
}

func (r *quickReader) space() {
	for r.at < len(r.text) && (r.text[r.at] == ' ' || r.text[r.at] == '\n' || r.text[r.at] == '\t' || r.text[r.at] == '\r') {
		r.at++
	}
}

// next skips white space and a character. It reports whether that was there.
func (r *quickReader) next(c byte) bool {
	r.space()
	if r.at == len(r.text) || r.text[r.at] != c {
		return false
	}
	r.at++
	return true
}

// string reads a string without escapes.
func (r *quickReader) string() (string, bool) {
	if !r.next('"') {
		return "", false
	}
	for i := r.at; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			text := r.text[r.at:i]
			r.at = i + 1
			return text, true
		case c < ' ' || c == '\\' || c > '~':
			return "", false
		}
	}
	return "", false
}

// integer reads a whole number of at most 18 digits.
func (r *quickReader) integer() (int64, bool) {
	r.space()
	begin := r.at
	if r.at < len(r.text) && r.text[r.at] == '-' {
		r.at++
	}
	first := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	digits := r.at - first
	if digits == 0 || digits > 18 || digits > 1 && r.text[first] == '0' {
		return 0, false
	}
	if r.at < len(r.text) && (r.text[r.at] == '.' || r.text[r.at]|' ' == 'e') {
		return 0, false
	}
	n, err := strconv.ParseInt(r.text[begin:r.at], 10, 64)
	return n, err == nil
}

// list reads an array of what read reads.
func (r *quickReader) list(read func(*quickReader) bool) bool {
	if !r.next('[') {
		return false
	}
	if r.next(']') {
		return true
	}
	for read(r) {
		if r.next(']') {
			return true
		}
		if !r.next(',') {
			return false
		}
	}
	return false
}

// ask reads one limit of a call. of is the call; nil for a limit among several.
func (r *quickReader) ask(a *ask, of *asking) bool {
	if !r.next('{') {
		return false
	}
	if r.next('}') {
		return true
	}
	for seen := 0; ; {
		name, ok := r.string()
		field := quickField(name, of != nil)
		if !ok || field == 0 || seen&field != 0 || !r.next(':') || !r.value(field, a, of) {
			return false
		}
		seen |= field
		if r.next('}') {
			return true
		}
		if !r.next(',') {
			return false
		}
	}
}

// The fields of a call. Each may be there once.
const (
	fieldLimit = 1 << iota
	fieldKey
	fieldCost
	fieldPlan
	fieldLimits
	fieldMaxDelay
	fieldHold
)

// quickField returns a field by its name; 0 for none. Those of the call as a whole are found only there.
func quickField(name string, call bool) int {
	switch name {
	case "limit":
		return fieldLimit
	case "key":
		return fieldKey
	case "cost":
		return fieldCost
	case "plan":
		return fieldPlan
	}
	if !call {
		return 0
	}
	switch name {
	case "limits":
		return fieldLimits
	case "max_delay_ms":
		return fieldMaxDelay
	case "hold_ms":
		return fieldHold
	}
	return 0
}

// value reads the value of a field.
func (r *quickReader) value(field int, a *ask, of *asking) (ok bool) {
	switch field {
	case fieldLimit:
		a.Limit, ok = r.string()
	case fieldPlan:
		a.Plan, ok = r.string()
	case fieldKey:
		a.Key = []string{}
		ok = r.list(func(r *quickReader) bool {
			part, ok := r.string()
			a.Key = append(a.Key, part)
			return ok
		})
	case fieldCost:
		var n int64
		n, ok = r.integer()
		a.Cost = &n
	case fieldLimits:
		of.Limits = []ask{}
		ok = r.list(func(r *quickReader) bool {
			of.Limits = append(of.Limits, ask{})
			return r.ask(&of.Limits[len(of.Limits)-1], nil)
		})
	case fieldMaxDelay:
		of.MaxDelay, ok = r.integer()
	case fieldHold:
		of.Hold, ok = r.integer()
	}
	return ok
}

// encode returns an answer as encoded does.
func (d *decision) encode() []byte {
	b := make([]byte, 0, 192+224*len(d.Limits))
	b = strconv.AppendBool(append(b, `{"allowed":`...), d.Allowed)
	b = appendField(b, `,"limit":`, d.Limit)
	b = appendWait(b, d.RetryAfter)
	if d.Delay != 0 {
		b = strconv.AppendInt(append(b, `,"delay_ms":`...), d.Delay, 10)
	}
	b = append(b, `,"limits":[`...)
	for i := range d.Limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.Limits[i].append(b)
	}
	b = append(b, ']')
	b = appendField(b, `,"reservation":`, d.Reservation)
	b = appendField(b, `,"expires_at":`, d.ExpiresAt)
	b = appendField(b, `,"store_problem":`, d.Problem)
	return append(b, "}\n"...)
}

func (s *state) append(b []byte) []byte {
	b = appendText(append(b, `{"limit":`...), s.Limit)
	b = strconv.AppendBool(append(b, `,"allowed":`...), s.Allowed)
	b = strconv.AppendInt(append(b, `,"capacity":`...), s.Capacity, 10)
	b = strconv.AppendInt(append(b, `,"remaining":`...), s.Remaining, 10)
	b = appendWait(b, s.RetryAfter)
	b = strconv.AppendInt(append(b, `,"reset_after_ms":`...), s.ResetAfter, 10)
	b = strconv.AppendInt(append(b, `,"window_ms":`...), s.Window, 10)
	b = appendText(append(b, `,"source":`...), s.Source)
	for _, x := range []struct {
		is   bool
		text string
	}{{s.Exempt, `,"exempt":true`}, {s.Shadow, `,"shadow":true`}, {s.Skipped, `,"not_evaluated":true`}} {
		if x.is {
			b = append(b, x.text...)
		}
	}
	return append(b, '}')
}

// appendWait appends a wait, if there is one that helps.
func appendWait(b []byte, ms *int64) []byte {
	if ms == nil {
		return b
	}
	return strconv.AppendInt(append(b, `,"retry_after_ms":`...), *ms, 10)
}

// appendField appends a field with a text, if it is not empty.
func appendField(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendText(append(b, name...), text)
}

// appendText appends a string.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			quoted, _ := json.Marshal(text) // names of limits have no <, > and &, which it would escape
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
