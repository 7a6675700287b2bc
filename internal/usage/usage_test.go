package usage

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// response is a response as a test writes it.
type response struct {
	kind string // the Content-Type
	body string
}

// events are server-sent events with these data.
func stream(data ...string) response {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return response{"text/event-stream; charset=utf-8", b.String()}
}

func object(body string) response { return response{"application/json", body} }

func compiled(t testing.TB, terms ...Term) *Spec {
	t.Helper()
	for i := range terms {
		terms[i].Weight = max(terms[i].Weight, 1)
	}
	s, err := Compile(terms)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// read reads a response in pieces of at most n bytes.
func read(s *Spec, r response, n int, complete bool) (cost int64, known, seen bool) {
	x := s.NewReader()
	x.Header(http.Header{"Content-Type": {r.kind}})
	for p := []byte(r.body); len(p) > 0; p = p[min(n, len(p)):] {
		x.Write(p[:min(n, len(p))])
	}
	return x.End(Ending{Complete: complete})
}

// The formats are those of the APIs' own documents.
var (
	chat = object(`{"id":"chatcmpl-1","object":"chat.completion","choices":[{"message":{"role":"assistant","content":"\"usage\":{\"prompt_tokens\":9}"}}],
		"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":5,"audio_tokens":0},
		"completion_tokens_details":{"reasoning_tokens":4}}}`)
	chatStream = stream(
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hello"}}],"usage":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`,
		`[DONE]`)
	responses = response{"text/event-stream", "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":37,\"input_tokens_details\":{\"cached_tokens\":7},\"output_tokens\":11,\"total_tokens\":48}}}\n\n"}
	messages       = object(`{"type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"output_tokens":6}}`)
	messagesStream = response{"text/event-stream", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"}
	geminiStream = stream(`{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":1,"totalTokenCount":5}}`,
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9,"thoughtsTokenCount":20,"cachedContentTokenCount":2,"totalTokenCount":33}}`)
	geminiArray = object("[{\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":5}}\n,\r\n{\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":9,\"totalTokenCount\":13}}]")
)

// TestPresets: each API's formats, as an answer and as a stream, and their parts.
func TestPresets(t *testing.T) {
	for _, c := range []struct {
		of   string
		in   response
		cost int64
	}{
		{"openai", chat, 29},
		{"openai.prompt", chat, 14},
		{"openai.cached", chat, 5},
		{"openai.completion", chat, 10},
		{"openai", chatStream, 29},
		{"openai", responses, 48},
		{"openai.prompt", responses, 30},
		{"openai", object(`{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`), 8},
		{"anthropic", messages, 1118},
		{"anthropic.cache_write", messages, 100},
		{"anthropic.cached", messages, 1000},
		{"anthropic.prompt", messages, 12},
		{"anthropic", messagesStream, 43},
		{"anthropic.completion", messagesStream, 15},
		{"gemini", geminiStream, 33},
		{"gemini.completion", geminiStream, 29},
		{"gemini.prompt", geminiStream, 2},
		{"gemini", geminiArray, 13},
		{"json.usage.total_tokens", chat, 29},
		{"json.usage.total_tokens", chatStream, 29},
		{"json.eval_count", response{"application/x-ndjson", "{\"response\":\"a\"}\n{\"done\":true,\"eval_count\":42}\n"}, 42},
		{"bytes", response{"text/plain", "hello"}, 5},
	} {
		for _, n := range []int{1, 2, 3, 7, 1 << 20} {
			cost, known, _ := read(compiled(t, Term{Of: c.of}), c.in, n, true)
			if cost != c.cost || !known {
				t.Errorf("%s of %.60q in pieces of %d: %d, %v, want %d", c.of, c.in.body, n, cost, known, c.cost)
			}
		}
	}
}

// TestWeights: a cost of tokens at different prices is one sum.
func TestWeights(t *testing.T) {
	s := compiled(t, Term{"openai.prompt", 30}, Term{"openai.cached", 3}, Term{"openai.completion", 120})
	if cost, known, _ := read(s, chat, 100, true); cost != 14*30+5*3+10*120 || !known {
		t.Errorf("%d, %v", cost, known)
	}
	for _, weight := range []int64{0, -1} {
		if _, err := Compile([]Term{{"openai", weight}}); err == nil {
			t.Errorf("a weight of %d is accepted", weight)
		}
	}
}

// TestUnknown: a response that was not read in full is reported, with what was seen of it.
func TestUnknown(t *testing.T) {
	cut := func(r response, behind string) response {
		r.body = r.body[:strings.Index(r.body, behind)+len(behind)]
		return r
	}
	for name, c := range map[string]struct {
		of          string
		in          response
		complete    bool
		cost        int64
		known, seen bool
	}{
		"no usage":                           {"openai", stream(`{"choices":[]}`, `[DONE]`), true, 0, false, false},
		"an error as text":                   {"openai", response{"text/html", "<html>busy</html>"}, true, 0, false, false},
		"cut off before the usage":           {"openai", cut(chatStream, "Hello"), false, 0, false, false},
		"cut off behind the usage":           {"openai", cut(chatStream, "29}}\n\n"), false, 29, true, true},
		"cut off in the number":              {"openai", cut(chatStream, `"prompt_tokens":19,"completion_tokens":1`), false, 19, false, true},
		"anthropic, cut off":                 {"anthropic", cut(messagesStream, "text_delta"), false, 29, false, true},
		"anthropic, an error in the stream":  {"anthropic", cut(messagesStream, "\"Hi\"}}\n\n"), true, 29, false, true},
		"anthropic, cut off before its stop": {"anthropic", cut(messagesStream, "15}}\n\n"), false, 43, true, true},
		"gemini, cut off":                    {"gemini", cut(geminiStream, "5}}\n\n"), false, 5, false, true},
		"usage in each event, cut off": {"openai", stream(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `{"usage":{"prompt_tokens":1,"completion_tokens":2}}`),
			false, 3, false, true},
		"usage in each event, to the end": {"openai", stream(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `{"usage":{"prompt_tokens":1,"completion_tokens":2}}`, `[DONE]`),
			false, 3, true, true},
		"an answer cut off":        {"openai", cut(chat, `"completion_tokens":10,`), false, 29, false, true},
		"a negative number":        {"openai", object(`{"usage":{"prompt_tokens":-1,"completion_tokens":2}}`), true, 2, false, true},
		"a fraction":               {"openai", object(`{"usage":{"prompt_tokens":1.5,"completion_tokens":2}}`), true, 2, false, true},
		"a number too large":       {"openai", object(`{"usage":{"prompt_tokens":9223372036854775808,"completion_tokens":2}}`), true, 2, false, true},
		"a sum too large":          {"openai", object(`{"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":2}}`), true, 0, false, true},
		"whole numbers as floats":  {"openai", object(`{"usage":{"prompt_tokens":1e3,"completion_tokens":12.0}}`), true, 1012, true, true},
		"a text":                   {"openai", object(`{"usage":{"prompt_tokens":"5","completion_tokens":2}}`), true, 2, false, true},
		"an object":                {"openai", object(`{"usage":{"prompt_tokens":{"n":1},"completion_tokens":2}}`), true, 2, false, true},
		"twice: the last counts":   {"openai", object(`{"usage":{"prompt_tokens":5,"completion_tokens":2},"usage":{"prompt_tokens":6}}`), true, 8, true, true},
		"in an array":              {"openai", object(`{"usage":[{"prompt_tokens":5,"completion_tokens":2}]}`), true, 0, false, false},
		"deeper than is followed":  {"openai", object(strings.Repeat(`{"a":`, 2000)), true, 0, false, false},
		"deep, and then the usage": {"openai", object(`{"a":` + strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000) + `,"usage":{"prompt_tokens":5,"completion_tokens":2}}`), true, 7, true, true},
		"in a comment":             {"openai", response{"text/event-stream", ": data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n"}, true, 0, false, false},
		"data over several lines":  {"openai", response{"text/event-stream", "data: {\"usage\":{\ndata:\"prompt_tokens\":5,\ndata\ndata: \"completion_tokens\":2}}\n\n"}, true, 7, true, true},
		"CRLF, over several lines": {"openai", response{"text/event-stream", "data: {\"usage\":{\r\ndata:\"prompt_tokens\":5,\r\ndata: \"completion_tokens\":2}}\r\n\r\n"}, true, 7, true, true},
		"CR, over several lines":   {"openai", response{"text/event-stream", "data: {\"usage\":{\rdata:\"prompt_tokens\":5,\rdata: \"completion_tokens\":2}}\r\r"}, true, 7, true, true},
		"CRLF":                     {"openai", response{"text/event-stream", strings.ReplaceAll(chatStream.body, "\n", "\r\n")}, true, 29, true, true},
		"CR":                       {"openai", response{"text/event-stream", strings.ReplaceAll(chatStream.body, "\n", "\r")}, true, 29, true, true},
		"a byte order mark":        {"openai", response{"text/event-stream", bom + chatStream.body}, true, 29, true, true},
		"a broken event between":   {"openai", stream(`{"usage":{"prompt_tokens":5,"completion_tokens":`, `{"usage":{"completion_tokens":2}}`), true, 7, true, true},
		"the last event unended":   {"openai", response{"text/event-stream", strings.TrimSuffix(chatStream.body, "\n\n")}, true, 29, true, true},
	} {
		for _, n := range []int{1, 3, 1 << 20} {
			cost, known, seen := read(compiled(t, Term{Of: c.of}), c.in, n, c.complete)
			if cost != c.cost || known != c.known || seen != c.seen {
				t.Errorf("%s, in pieces of %d: %d, known %v, seen %v, want %d, %v, %v", name, n, cost, known, seen, c.cost, c.known, c.seen)
			}
		}
	}
}

// TestHeaders: numbers in header and trailer fields, and times.
func TestHeaders(t *testing.T) {
	s := compiled(t, Term{Of: "header.x-cost"}, Term{Of: "trailer.x-more", Weight: 10}, Term{Of: "duration", Weight: 100}, Term{Of: "upstream_time", Weight: 1000})
	end := Ending{Complete: true, Duration: 3*time.Millisecond + 1, Upstream: 2 * time.Millisecond}
	for name, c := range map[string]struct {
		header, trailer http.Header
		cost            int64
		known           bool
	}{
		"announced":        {http.Header{"X-Cost": {"3"}}, http.Header{"X-More": {"2"}}, 2423, true},
		"not announced":    {http.Header{"X-Cost": {"3"}}, http.Header{http.TrailerPrefix + "X-More": {"2"}}, 2423, true},
		"no trailer":       {http.Header{"X-Cost": {"3"}}, nil, 2403, false},
		"a header twice":   {http.Header{"X-Cost": {"3", "4"}}, http.Header{"X-More": {"2"}}, 2420, false},
		"a negative cost":  {http.Header{"X-Cost": {"-3"}}, http.Header{"X-More": {"2"}}, 2420, false},
		"a cost as a text": {http.Header{"X-Cost": {"many"}}, http.Header{"X-More": {"2"}}, 2420, false},
	} {
		r := s.NewReader()
		r.Header(c.header)
		end.Trailer = c.trailer
		if cost, known, _ := r.End(end); cost != c.cost || known != c.known {
			t.Errorf("%s: %d, %v, want %d, %v", name, cost, known, c.cost, c.known)
		}
	}
	if s.ReadsBody() {
		t.Error("a body is read of which nothing is wanted")
	}
}

// TestTrailerAndHeaderOfOneName: servers keep the fields of the header and the trailer in one map. When a
// response had been cut off before its trailer, the header field of that name was taken for its cost.
func TestTrailerAndHeaderOfOneName(t *testing.T) {
	s := compiled(t, Term{Of: "trailer.x-cost"})
	for name, c := range map[string]struct {
		fields   []string // at the end
		complete bool
		cost     int64
		known    bool
	}{
		"cut off":           {[]string{"7"}, false, 0, false},
		"cut off behind it": {[]string{"9"}, false, 9, true},
		"whole":             {[]string{"9"}, true, 9, true},
		"the same value":    {[]string{"7"}, true, 7, true},
	} {
		r := s.NewReader()
		r.Header(http.Header{"X-Cost": {"7"}})
		for range 2 {
			if cost, known, _ := r.End(Ending{Complete: c.complete, Trailer: http.Header{"X-Cost": c.fields}}); cost != c.cost || known != c.known {
				t.Errorf("%s: %d, %v, want %d, %v", name, cost, known, c.cost, c.known)
			}
		}
	}
}

// TestGzip: compressed answers and streams are read, and what is broken is unknown.
func TestGzip(t *testing.T) {
	good := zipped(messagesStream.body)
	s := compiled(t, Term{Of: "anthropic"})
	for name, c := range map[string]struct {
		kind, encoding string
		body           []byte
		cost           int64
		known          bool
	}{
		"a stream":         {"text/event-stream", "gzip", good, 43, true},
		"cut off":          {"text/event-stream", "gzip", good[:len(good)-12], 43, true}, // the usage has come
		"an object":        {"application/json", "GZIP", zipped(messages.body), 1118, true},
		"not compressed":   {"application/json", "gzip", []byte(messages.body), 0, false},
		"nothing":          {"application/json", "gzip", nil, 0, false},
		"another encoding": {"application/json", "br", []byte(messages.body), 0, false},
		"two encodings":    {"application/json", "gzip, gzip", good, 0, false},
	} {
		for range 2 { // the second uses the first one's decompressor
			if cost, known := readInPieces(s, c.kind, c.encoding, c.body); cost != c.cost || known != c.known {
				t.Errorf("%s: %d, %v, want %d, %v", name, cost, known, c.cost, c.known)
			}
		}
	}
}

// TestGzipBomb: the usage of an answer that becomes too large is unknown.
func TestGzipBomb(t *testing.T) {
	raced.Skip(t)
	bomb := zipped(`{"a":"` + strings.Repeat("x", maxInflated) + `","usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	s := compiled(t, Term{Of: "anthropic"})
	for range 2 {
		if cost, known := readInPieces(s, "application/json", "gzip", bomb); cost != 0 || known {
			t.Errorf("%d, %v", cost, known)
		}
	}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.Bytes()
}

// readInPieces reads a response in pieces of 1,000 bytes, and returns its cost.
func readInPieces(s *Spec, kind, encoding string, body []byte) (cost int64, known bool) {
	r := s.NewReader()
	r.Header(http.Header{"Content-Type": {kind}, "Content-Encoding": {encoding}})
	for p := body; len(p) > 0; p = p[min(1000, len(p)):] {
		r.Write(p[:min(1000, len(p))])
	}
	cost, known, _ = r.End(Ending{Complete: true})
	return cost, known
}

// TestWrongTerms: what cannot be read is an error that says what can.
func TestWrongTerms(t *testing.T) {
	for of, want := range map[string]string{
		"opnai":                  "did you mean openai?",
		"openai.promt":           "write total, prompt, cached, cache_write, completion",
		"json.":                  "is not a path",
		"json.a..b":              "is not a path",
		"header.x cost":          "is not the name of a header field",
		"json.a.b.c.d.e.f.g.h.i": "more than 8 names",
		"":                       "write json.FIELD",
	} {
		if _, err := Compile([]Term{{of, 1}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", of, err, want)
		}
	}
}

// TestPieces: however a response is cut into pieces, the result is the same. The responses are made
// of fragments that matter to the readers, in any order.
func TestPieces(t *testing.T) {
	raced.Skip(t)
	rnd := seeds.Of(t.Name())
	for range 4000 {
		checkPieces(t, rnd, assemble(rnd))
	}
}

// fragments are what responses of TestPieces are made of.
var fragments = []string{
	"data: ", "data:", "data", "\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r\r", ": comment", "event: x", "id: 1", bom, bom[:2], "[DONE]", "dat", "datax:",
	`{"usage":{"prompt_tokens":5,"completion_tokens":2}}`, `{"usage":{"prompt_tokens":`, `{"usage":null}`, `"completion_tokens":1e2`, `{"message":{"usage":{"input_tokens":3}}}`,
	`{"usage":{"output_tokens":7}}`, `{"usageMetadata":{"totalTokenCount":7}}`, `{"type":"x","text":"a\"b\\"}`, `\`, `\\`, `"`, `{`, `}`, `[`, `]`, `,`, `:`, `1`, `.0`, `-`, ` `,
	`"usage"`, `"a"`, `null`, `"prompt_tokens"`, strings.Repeat("9", 300), `"` + strings.Repeat("p", 300) + `_tokens"`,
}

func assemble(rnd *rand.Rand) string {
	var b strings.Builder
	for range rnd.IntN(16) {
		b.WriteString(fragments[rnd.IntN(len(fragments))])
	}
	return b.String()
}

func checkPieces(t *testing.T, rnd *rand.Rand, body string) {
	t.Helper()
	type result struct {
		cost        int64
		known, seen bool
	}
	for _, of := range []string{"openai", "anthropic", "gemini", "json.usage.prompt_tokens", "json.a"} {
		s := compiled(t, Term{Of: of})
		for _, kind := range []string{"text/event-stream", "application/json"} {
			var want result
			want.cost, want.known, want.seen = read(s, response{kind, body}, 1<<20, true)
			for _, n := range []int{1, 2, 1 + rnd.IntN(20)} {
				var got result
				if got.cost, got.known, got.seen = read(s, response{kind, body}, n, true); got != want {
					t.Fatalf("%s of %s %q: %v whole, %v in pieces of %d", of, kind, body, want, got, n)
				}
			}
		}
	}
}

// FuzzPieces is TestPieces with responses of the fuzzer.
func FuzzPieces(f *testing.F) {
	for _, r := range []response{chat, chatStream, responses, messages, messagesStream, geminiStream, geminiArray} {
		f.Add(r.body)
	}
	f.Fuzz(func(t *testing.T, body string) { checkPieces(t, rand.New(rand.NewPCG(1, uint64(len(body)))), body) })
}

// TestReadingAllocatesNothing: a stream of any length is read without an allocation for each event.
func TestReadingAllocatesNothing(t *testing.T) {
	r := compiled(t, Term{Of: "openai"}).NewReader()
	r.Header(http.Header{"Content-Type": {"text/event-stream"}})
	body := []byte(chatStream.body)
	r.Write(body)
	if n := testing.AllocsPerRun(100, func() { r.Write(body) }); n > 0 {
		t.Errorf("%v allocations for %d bytes", n, len(body))
	}
	r.End(Ending{})
}

// BenchmarkEvents reads streams as the APIs send them, in pieces of 4 KiB.
func BenchmarkEvents(b *testing.B) {
	for _, c := range []struct {
		name, of, event, end string
	}{
		{"chat", "openai", `data: {"id":"chatcmpl-A1b2C3d4E5f6G7h8I9j0","object":"chat.completion.chunk","created":1763840000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"AbCdEf"}` + "\n\n", chatStream.body},
		{"responses", "openai", "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_68b1c0a4d5e6f7890a1b2c3d4e5f6a7b","output_index":0,"content_index":0,"delta":" token","logprobs":[],"obfuscation":"AbCdEf123"}` + "\n\n", responses.body},
		{"messages", "anthropic", "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" some tokens"}}` + "\n\n", messagesStream.body},
		{"gemini", "gemini", `data: {"candidates": [{"content": {"parts": [{"text": "` + strings.Repeat(" some tokens", 20) + `"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 50,"totalTokenCount": 58,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 8}]},"modelVersion": "gemini-2.5-flash"}` + "\r\n\r\n", geminiStream.body},
		{"field", "json.usage.prompt_tokens", `data: {"choices":[{"index":0,"delta":{"content":" token"}}]}` + "\n\n", chatStream.body},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := compiled(b, Term{Of: c.of})
			body := []byte(strings.Repeat(c.event, 1000) + c.end)
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r := s.NewReader()
				r.Header(http.Header{"Content-Type": {"text/event-stream"}})
				for p := range slices.Chunk(body, 4096) {
					r.Write(p)
				}
				r.End(Ending{Complete: true})
			}
		})
	}
}

// BenchmarkObject reads a long answer.
func BenchmarkObject(b *testing.B) {
	body := `{"choices":[{"message":{"content":"` + strings.Repeat(`A line with \"quotes\" in it.\n`, 2000) + `"}}],"usage":{"prompt_tokens":19,"completion_tokens":10}}`
	s := compiled(b, Term{Of: "openai"})
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if cost, known, _ := read(s, object(body), 4096, true); cost != 29 || !known {
			b.Fatal(cost, known)
		}
	}
}
