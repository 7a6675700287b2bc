package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/usage"
	"github.com/weirflow/weir/weirjwt"
)

// Targets of the section costs.
const (
	usageGBs = 1    // GB of events a second, on one core
	tokenNs  = 1000 // for a token that was verified before
)

// piece is how much of a response is read at once.
const piece = 4096

// costs measures what a gateway adds to a request with a token, and to a response whose usage it
// reads, and when the first byte of such a response comes.
func costs(r *report) error {
	reading, err := readingContest()
	if err != nil {
		return err
	}
	outcomes, err := reading.run(r.rounds, r.round)
	if err != nil {
		return err
	}
	r.add(readingTable(reading, outcomes))

	folder, err := os.MkdirTemp("", "weir-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	tokens, end, err := tokenContest(folder)
	if err != nil {
		return err
	}
	defer end()
	if outcomes, err = tokens.run(r.rounds, r.round); err != nil {
		return err
	}
	t := tokens.table(outcomes)
	t.Rows[0].Target, t.Rows[0].Missed = atMost(median(outcomes[0].perOp), tokenNs, "ns")
	r.add(t)
	return firstBytes(r, folder)
}

// A usageStream is one kind of stream, by a typical event of it.
type usageStream struct{ name, preset, event string }

// usageStreams returns the streams of the three APIs, as they send them.
func usageStreams() []usageStream {
	return []usageStream{
		{"OpenAI, chat completions", "openai", `data: {"id":"chatcmpl-A1b2C3d4E5f6G7h8I9j0","object":"chat.completion.chunk","created":1763840000,"model":"gpt-4o-mini-2024-07-18",` +
			`"service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"PAD"}` + "\n\n"},
		{"OpenAI, responses", "openai", "event: response.output_text.delta\n" +
			`data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_68b1c0a4d5e6f7890a1b2c3d4e5f6a7b","output_index":0,"content_index":0,"delta":" token","logprobs":[],"obfuscation":"PAD"}` + "\n\n"},
		{"Anthropic, messages", "anthropic", "event: content_block_delta\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" some tokens PAD"}}` + "\n\n"},
		// usage in each event
		{"Gemini", "gemini", `data: {"candidates": [{"content": {"parts": [{"text": "` + strings.Repeat(" some tokens", 20) + `PAD"}],"role": "model"},"index": 0}],` +
			`"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 50,"totalTokenCount": 58,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 8}]},"modelVersion": "gemini-2.5-flash"}` + "\r\n\r\n"},
	}
}

// pieces returns a stream as it is read. It can be read again and again: it ends at the end of an
// event.
func (s usageStream) pieces() [][]byte {
	const unit = 64
	pad := unit - (len(s.event)-len("PAD"))%unit
	event := strings.Replace(s.event, "PAD", strings.Repeat("x", pad), 1)
	return slices.Collect(slices.Chunk([]byte(strings.Repeat(event, piece/unit)), piece))
}

// readingContest reads the usage of streams of server-sent events, on one core.
func readingContest() (contest, error) {
	c := contest{
		title: "reading the usage of a response, on one core",
		procs: 1,
		notes: []string{fmt.Sprintf("one operation reads %d bytes of server-sent events", piece)},
	}
	for _, s := range usageStreams() {
		spec, err := usage.Compile([]usage.Term{{Of: s.preset, Weight: 1}})
		if err != nil {
			return c, err
		}
		all := s.pieces()
		c.subjects = append(c.subjects, subject{s.name, func() loop {
			r := spec.NewReader()
			r.Header(http.Header{"Content-Type": {"text/event-stream"}})
			return func(n int) (yes int) {
				for i := range n {
					r.Write(all[i%len(all)])
				}
				return n
			}
		}, allYes, nil})
	}
	return c, nil
}

// readingTable adds a column with GB/s.
func readingTable(c contest, outcomes []outcome) table {
	speed := map[string]float64{}
	for i, s := range c.subjects {
		speed[s.name] = piece / median(outcomes[i].perOp)
	}
	c.facts = []fact{{column{"GB/s", 2}, speed}}
	t := c.table(outcomes)
	for i, s := range c.subjects {
		t.Rows[i].Target, t.Rows[i].Missed = atLeast(speed[s.name], usageGBs, "GB/s")
	}
	return t
}

// tokenContest verifies a token that was verified before. end closes the verifier.
func tokenContest(folder string) (c contest, end func(), err error) {
	path := filepath.Join(folder, "jwks.json")
	token, err := newToken(path)
	if err != nil {
		return c, nil, err
	}
	v, err := weirjwt.New(context.Background(), weirjwt.Options{JWKS: path, Issuer: "https://id.example", Audience: "api"})
	if err != nil {
		return c, nil, err
	}
	return contest{
		title: "a token that was verified before, on one core",
		procs: 1,
		subjects: []subject{{"weirjwt Texts", func() loop {
			return func(n int) (yes int) {
				for range n {
					if claims, err := v.Texts(context.Background(), token); err == nil && claims["sub"] == "customer-1" {
						yes++
					}
				}
				return yes
			}
		}, allYes, nil}},
	}, v.Close, nil
}

// newToken returns a token that is valid for a day, and writes the key of its issuer to a file.
func newToken(jwks string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	point, err := key.PublicKey.Bytes() // 4, x and y
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString
	set := map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "kid": "a", "alg": "ES256", "use": "sig", "x": text(point[1:33]), "y": text(point[33:]),
	}}}
	data, err := json.Marshal(set)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(jwks, data, 0o600); err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": "https://id.example", "aud": "api", "sub": "customer-1", "plan": "pro", "exp": time.Now().Add(24 * time.Hour).Unix(),
	})
	if err != nil {
		return "", err
	}
	signed := text([]byte(`{"alg":"ES256","kid":"a","typ":"JWT"}`)) + "." + text(claims)
	hash := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + text(signature), nil
}
