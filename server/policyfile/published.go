package policyfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/weirflow/weir/policy"
)

// hidden replaces a password.
const hidden = "xxxxx"

// Published returns the policy as JSON, which is also valid YAML. It has the order of the file and
// no comments. The passwords in the URLs of stores are hidden; Reveal restores them.
func (f *File) Published() ([]byte, error) {
	root, err := parse(f.Data)
	if err != nil {
		return nil, err
	}
	for _, s := range fields(root.get("stores")) {
		if n := s.value.get("url"); n != nil && n.shape == scalar {
			n.value = hide(text(n))
		}
	}
	var b bytes.Buffer
	if err := root.json(&b); err != nil {
		return nil, err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, b.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	pretty.WriteByte('\n')
	return pretty.Bytes(), nil
}

// HiddenText returns the text of the file with the passwords of its stores hidden, as Published hides them. ok
// is false if one of them is written in a way that cannot be hidden in the text.
func (f *File) HiddenText() (shown []byte, ok bool) {
	shown = slices.Clone(f.Data)
	var urls []string
	for _, s := range f.Policy.Stores {
		urls = append(urls, s.URL)
	}
	// the longest first, because one URL may be the beginning of another
	slices.SortFunc(urls, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, url := range urls {
		shown = bytes.ReplaceAll(shown, []byte(url), []byte(hide(url)))
	}
	root, err := parse(shown)
	if err != nil {
		return nil, false
	}
	for _, s := range fields(root.get("stores")) {
		if n := s.value.get("url"); n != nil && n.shape == scalar && hide(text(n)) != text(n) {
			return nil, false
		}
	}
	return shown, true
}

// Reveal restores the passwords of this file's stores in a policy that has their URLs with the
// passwords hidden, as Published writes them. It restores them only in the URLs of stores. If such
// a URL occurs in another place, or inside another URL, Reveal returns the data unchanged.
func (f *File) Reveal(data []byte) []byte {
	var stores []string
	for _, s := range f.Policy.Stores {
		if hide(s.URL) != s.URL {
			stores = append(stores, s.URL)
		}
	}
	// The longest first, because one URL may be the beginning of another.
	slices.SortFunc(stores, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	revealed := data
	for _, url := range slices.Compact(stores) {
		revealed = bytes.ReplaceAll(revealed, []byte(hide(url)), []byte(url))
	}
	was, err := parse(data)
	if err != nil {
		return data
	}
	is, err := parse(revealed)
	if err != nil || !f.onlyRevealed(was, is) {
		return data
	}
	return revealed
}

// onlyRevealed reports whether two policies differ only in URLs of stores, all of which belong to
// this file.
func (f *File) onlyRevealed(was, is *node) bool {
	then, now := fields(was.get("stores")), fields(is.get("stores"))
	for i := range min(len(then), len(now)) {
		a, b := then[i].value.get("url"), now[i].value.get("url")
		if text(a) == text(b) {
			continue
		}
		if !slices.ContainsFunc(f.Policy.Stores, func(s policy.Store) bool { return s.Name == now[i].name && s.URL == text(b) }) {
			return false
		}
		a.value, b.value = "", ""
	}
	return reflect.DeepEqual(was.any(), is.any())
}

// hide removes the passwords from a store's URL: the one after the user's name, and the parameter
// sentinel_password.
func hide(url string) string {
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		return url
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, password, has := strings.Cut(rest[:at], ":"); has && password != "" {
			rest = user + ":" + hidden + rest[at:]
		}
	}
	url = scheme + "://" + rest
	if !hasQuery {
		return url
	}
	parameters := strings.Split(query, "&")
	for i, p := range parameters {
		if name, value, _ := strings.Cut(p, "="); strings.HasSuffix(name, "password") && value != "" {
			parameters[i] = name + "=" + hidden
		}
	}
	return url + "?" + strings.Join(parameters, "&")
}

// json writes a tree in the order of the file.
func (n *node) json(b *bytes.Buffer) error {
	switch n.shape {
	case mapping:
		b.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, f.name); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := f.value.json(b); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case list:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := item.json(b); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	return writeJSON(b, n.value)
}

// writeJSON writes a value without escaping & and <, so that URLs can be found again.
func writeJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
