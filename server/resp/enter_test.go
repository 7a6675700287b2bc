package resp

import (
	"strings"
	"testing"
)

const entered = `
limits:
  uploads: { key: client.ip, concurrency: { limit: 2 } }
  api: { key: client.ip, token_bucket: { rate: 1/h, burst: 3 } }
routes:
  - { match: POST /upload, limits: [uploads, api] }
  - { match: /adaptive, adaptive: { knee: { initial: 1, max: 1 } } }
`

// TestEnter: requests have places at the limits of their routes until they are left, all or nothing.
func TestEnter(t *testing.T) {
	f := serve(t, "", entered)
	c := dial(t, f)
	place := func(text string) string {
		t.Helper()
		c.send(text + "\r\n")
		words := strings.Fields(c.reply())
		return words[len(words)-1]
	}
	const upload = "WEIR.ENTER /upload?x=1 METHOD POST CLIENT 192.0.2.1"
	first := place(upload)
	c.does(upload+" HOLD 1000", "allowed 1 status 0 retry_after_ms 0 hold_ms 1000 refused_by  place ")
	c.does(upload, "allowed 0 status 429 retry_after_ms -1 hold_ms 0 refused_by uploads place ") // and nothing of api is charged
	c.does("WEIR.PEEK api 1 192.0.2.1", "allowed 1 limit 3 remaining 1")
	c.does("WEIR.LEAVE "+first, "+OK")
	c.does("WEIR.LEAVE "+first, "-ERR there is no such place")
	c.does(upload, "allowed 1 ")
	c.does(upload, "allowed 0 status ")
	one := place("WEIR.ENTER /adaptive HEADER X-Priority critical")
	c.does("WEIR.ENTER /adaptive", "allowed 0 status 503 retry_after_ms 1000 hold_ms 0 refused_by adaptive:")
	dial(t, f).does("WEIR.LEAVE "+one+" dropped", "+OK")
	c.does("WEIR.ENTER /adaptive", "allowed 1 ")
	c.does("WEIR.ENTER /other", "allowed 1 status 0 retry_after_ms 0 hold_ms 0 refused_by  place ")
	for command, want := range map[string]string{
		"WEIR.ENTER upload":                        "allowed 0 status 400",
		"WEIR.ENTER /upload METHOD":                "-ERR syntax error at 'METHOD': write WEIR.ENTER PATH",
		"WEIR.ENTER /upload METHOD GET METHOD GET": "-ERR METHOD is written twice",
		"WEIR.ENTER /upload CLIENT here":           "-ERR this is no IP address",
		"WEIR.ENTER /upload LENGTH -1":             "-ERR a body has no negative length",
		"WEIR.ENTER /upload LENGTH x":              "-ERR LENGTH is not a whole number",
		"WEIR.ENTER /upload HOLD 3600001":          "-ERR HOLD is not 1 to 3600000 milliseconds",
		"WEIR.ENTER /upload HEADER X":              "-ERR syntax error at 'HEADER'",
		"WEIR.ENTER /upload HEADER X a HEADER x b": "-ERR the header field 'x' is written twice",
		"WEIR.ENTER /upload COST 3":                "-ERR syntax error at 'COST'",
		"WEIR.LEAVE x":                             "-ERR there is no such place",
		"WEIR.LEAVE x well":                        "-ERR write WEIR.LEAVE PLACE [ok|ignored|dropped]",
		"WEIR.LEAVE x ok ok":                       "-ERR write WEIR.LEAVE PLACE [ok|ignored|dropped]",
	} {
		c.does(command, want)
	}
}
