// Package standin is an upstream that responds as the APIs of language models do: OpenAI's chat
// completions and responses, Anthropic's messages, Gemini's generateContent. It streams words at a
// set pace, and knows what it has spent, so that one can see whether a gateway counts the same.
package standin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// An Upstream is an http.Handler. A model whose name begins with "error" gets 400, one that begins
// with "cut" breaks off within its response, and one that begins with "tool" calls a tool.
type Upstream struct {
	Pace  time.Duration // between two tokens
	Words int           // tokens of an answer, if max_tokens is not lower; default: 20

	spent, busy, peak atomic.Int64
}

// Spent returns the tokens of all responses that were sent in full.
func (u *Upstream) Spent() int64 { return u.spent.Load() }

// Peak returns the most requests that were in flight at once.
func (u *Upstream) Peak() int64 { return u.peak.Load() }

// request is what the APIs' requests have in common here.
type request struct {
	Model               string
	Stream              bool
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	MaxOutputTokens     int `json:"max_output_tokens"`
	GenerationConfig    struct{ MaxOutputTokens int }
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// answer is one response on its way.
type answer struct {
	*Upstream
	w              http.ResponseWriter
	r              *http.Request
	req            request
	prompt, tokens int
}

// ServeHTTP responds to the path of one of the APIs.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for n := u.busy.Add(1); ; {
		if p := u.peak.Load(); p >= n || u.peak.CompareAndSwap(p, n) {
			break
		}
	}
	defer u.busy.Add(-1)
	body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	a := &answer{Upstream: u, w: w, r: r, prompt: len(body)/4 + 1}
	if err != nil || json.Unmarshal(body, &a.req) != nil {
		a.fail("the body is no JSON")
		return
	}
	a.tokens = u.Words
	if a.tokens == 0 {
		a.tokens = 20
	}
	for _, most := range []int{a.req.MaxTokens, a.req.MaxCompletionTokens, a.req.MaxOutputTokens, a.req.GenerationConfig.MaxOutputTokens} {
		if most > 0 {
			a.tokens = min(a.tokens, most)
		}
	}
	a.byPath()
}

func (a *answer) byPath() {
	path := a.r.URL.Path
	if model, ok := strings.CutPrefix(path, "/v1beta/models/"); ok {
		var method string
		a.req.Model, method, _ = strings.Cut(model, ":")
		a.req.Stream = method == "streamGenerateContent"
		path = "/v1beta/models/"
	}
	if strings.HasPrefix(a.req.Model, "error") {
		a.fail("there is no such model")
		return
	}
	switch path {
	case "/v1/chat/completions":
		a.chat()
	case "/v1/responses":
		a.response()
	case "/v1/messages":
		a.message()
	case "/v1beta/models/":
		a.gemini()
	default:
		http.NotFound(a.w, a.r)
		return
	}
	a.spent.Add(int64(a.prompt + a.tokens))
}

// fail sends an error in the form of all three APIs.
func (a *answer) fail(text string) {
	a.w.Header().Set("Content-Type", "application/json")
	a.w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(a.w, `{"type":"error","error":{"type":"invalid_request_error","message":%q,"code":400,"param":null}}`, text)
}

// object sends a whole response after the time that its tokens take.
func (a *answer) object(format string, args ...any) {
	a.pause(a.tokens)
	a.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(a.w, format, args...)
}

// pause waits for n tokens.
func (a *answer) pause(n int) {
	if a.Pace == 0 {
		return
	}
	select {
	case <-a.r.Context().Done():
		panic(http.ErrAbortHandler) // the client has left
	case <-time.After(time.Duration(n) * a.Pace):
	}
}

// event sends an event of a stream. kind is its name; empty for none.
func (a *answer) event(kind, format string, args ...any) {
	if kind != "" {
		fmt.Fprintf(a.w, "event: %s\n", kind)
	}
	fmt.Fprintf(a.w, "data: "+format+"\n\n", args...)
	_ = http.NewResponseController(a.w).Flush() // the next write meets the error
}

// words sends an event for each token.
func (a *answer) words(send func(word string)) {
	for i := range a.tokens {
		if i == a.tokens/2 && strings.HasPrefix(a.req.Model, "cut") {
			panic(http.ErrAbortHandler)
		}
		a.pause(1)
		send(fmt.Sprintf("word%d ", i))
	}
}

// text is a whole answer.
func (a *answer) text() string { return strings.TrimSpace(strings.Repeat("word ", a.tokens)) }

func (a *answer) chat() {
	const tool = `"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bern\"}"}}]`
	head := fmt.Sprintf(`"id":"chatcmpl-1","created":1763840000,"model":%q`, a.req.Model)
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}`, a.prompt, a.tokens, a.prompt+a.tokens)
	calls := strings.HasPrefix(a.req.Model, "tool")
	if !a.req.Stream {
		message, reason := fmt.Sprintf(`"content":%q`, a.text()), "stop"
		if calls {
			message, reason = `"content":null,`+tool, "tool_calls"
		}
		a.object(`{%s,"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":%q}],"usage":%s}`, head, message, reason, usage)
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	chunk := func(delta, reason string) {
		a.event("", `{%s,"object":"chat.completion.chunk","choices":[{"index":0,"delta":{%s},"finish_reason":%s}],"usage":null}`, head, delta, reason)
	}
	if calls {
		chunk(`"role":"assistant","content":null,`+tool, "null")
		a.pause(a.tokens)
		chunk("", `"tool_calls"`)
	} else {
		a.words(func(word string) { chunk(fmt.Sprintf(`"content":%q`, word), "null") })
		chunk("", `"stop"`)
	}
	if a.req.StreamOptions.IncludeUsage {
		a.event("", `{%s,"object":"chat.completion.chunk","choices":[],"usage":%s}`, head, usage)
	}
	a.event("", "[DONE]")
}

func (a *answer) response() {
	done := func() string {
		return fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":1763840000,"status":"completed","model":%q,
			"output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}],
			"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}}`,
			a.req.Model, a.text(), a.prompt, a.tokens, a.prompt+a.tokens)
	}
	oneLine := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if !a.req.Stream {
		a.object("%s", done())
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.event("response.created", `{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","usage":null}}`)
	a.words(func(word string) {
		a.event("response.output_text.delta", `{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"sequence_number":1,"delta":%q}`, word)
	})
	a.event("response.completed", `{"type":"response.completed","sequence_number":2,"response":%s}`, oneLine(done()))
}

func (a *answer) message() {
	const tool = `{"type":"tool_use","id":"toolu_1","name":"weather","input":%s}`
	calls := strings.HasPrefix(a.req.Model, "tool")
	if !a.req.Stream {
		content, reason := fmt.Sprintf(`{"type":"text","text":%q}`, a.text()), "end_turn"
		if calls {
			content, reason = fmt.Sprintf(tool, `{"city":"Bern"}`), "tool_use"
		}
		a.object(`{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[%s],"stop_reason":%q,"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":%d}}`,
			a.req.Model, content, reason, a.prompt, a.tokens)
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":1}}}`, a.req.Model, a.prompt)
	if calls {
		a.event("content_block_start", `{"type":"content_block_start","index":0,"content_block":`+fmt.Sprintf(tool, "{}")+`}`)
		a.event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"city\":\"Bern\"}"}}`)
		a.pause(a.tokens)
	} else {
		a.event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		a.words(func(word string) {
			a.event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, word)
		})
	}
	a.event("content_block_stop", `{"type":"content_block_stop","index":0}`)
	a.event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}}`, a.tokens)
	a.event("message_stop", `{"type":"message_stop"}`)
}

func (a *answer) gemini() {
	const chunk = `{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]},"index":0}],"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d}}`
	if !a.req.Stream {
		a.object(chunk, a.text(), a.prompt, a.tokens, a.prompt+a.tokens)
		return
	}
	sent := 0
	if a.r.URL.Query().Get("alt") == "sse" {
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.words(func(word string) {
			sent++
			a.event("", chunk, word, a.prompt, sent, a.prompt+sent)
		})
		return
	}
	a.w.Header().Set("Content-Type", "application/json")
	before := "["
	a.words(func(word string) {
		sent++
		fmt.Fprintf(a.w, before+chunk, word, a.prompt, sent, a.prompt+sent)
		_ = http.NewResponseController(a.w).Flush() // the next write meets the error
		before = "\n,\r\n"
	})
	io.WriteString(a.w, "\n]")
}
