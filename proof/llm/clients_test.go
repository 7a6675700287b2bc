package llm

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/weirflow/weir/examples/llm-gateway/standin"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/policyfile"
)

// front is the gateway of examples/llm-gateway in front of a stand-in.
type front struct {
	upstream *standin.Upstream
	policy   *active.Policy
	url      string
}

func start(t *testing.T) *front {
	t.Helper()
	f := &front{upstream: &standin.Upstream{Pace: time.Millisecond}}
	up := httptest.NewServer(f.upstream)
	t.Cleanup(up.Close)
	text, err := os.ReadFile("../../examples/llm-gateway/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := policyfile.Parse("policy.yaml", []byte(strings.ReplaceAll(string(text), "http://127.0.0.1:9000", up.URL)))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if f.policy, err = active.New(t.Context(), file, active.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(t.Context(), f.policy, log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	t.Cleanup(func() {
		server.Close()
		if err := errors.Join(g.Close(), f.policy.Close()); err != nil {
			t.Error(err)
		}
	})
	f.url = server.URL
	return f
}

// count returns what a limit has counted.
func (f *front) count(t *testing.T, limit string) policy.Count {
	t.Helper()
	for _, c := range f.policy.Engine().Counts() {
		if c.Limit == limit {
			return c
		}
	}
	t.Fatalf("no limit %s", limit)
	return policy.Count{}
}

// charged waits until a limit has charged as many tokens.
func (f *front) charged(t *testing.T, limit string, want uint64) {
	t.Helper()
	for deadline := time.After(30 * time.Second); f.count(t, limit).Actual != want; {
		select {
		case <-deadline:
			t.Fatalf("%s has charged %+v, want %d", limit, f.count(t, limit), want)
		case <-time.After(time.Millisecond):
		}
	}
}

func (f *front) openai() openai.Client {
	return openai.NewClient(openaioption.WithBaseURL(f.url+"/v1/"), openaioption.WithAPIKey("key"), openaioption.WithMaxRetries(0))
}

func (f *front) anthropic() anthropic.Client {
	return anthropic.NewClient(anthropicoption.WithBaseURL(f.url), anthropicoption.WithAPIKey("key"), anthropicoption.WithMaxRetries(0))
}

func chat(model string, most int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(most),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
}

// TestOpenAI: answers and streams, with tools, are what the client reads without a gateway, and
// cost as much as the client reads in them.
func TestOpenAI(t *testing.T) {
	f := start(t)
	client := f.openai()
	var spent uint64
	for _, model := range []string{"gpt", "tool"} {
		answer, err := client.Chat.Completions.New(t.Context(), chat(model, 100))
		if err != nil {
			t.Fatal(err)
		}
		if calls := answer.Choices[0].Message.ToolCalls; model == "tool" && (len(calls) != 1 || calls[0].Function.Name != "weather") {
			t.Errorf("tool calls: %+v", calls)
		}
		spent += uint64(answer.Usage.TotalTokens)
		f.charged(t, "openai", spent)

		params := chat(model, 100)
		params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil || all.Usage.TotalTokens == 0 {
			t.Fatalf("%v, %+v", err, all.Usage)
		}
		if words := strings.Count(all.Choices[0].Message.Content, "word"); model == "gpt" && words != 20 {
			t.Errorf("%d words arrive", words)
		}
		spent += uint64(all.Usage.TotalTokens)
		f.charged(t, "openai", spent)
	}
	answer, err := client.Responses.New(t.Context(), responses.ResponseNewParams{
		Model: "gpt", MaxOutputTokens: openai.Int(10), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello")},
	})
	if err != nil {
		t.Fatal(err)
	}
	spent += uint64(answer.Usage.TotalTokens)
	f.charged(t, "openai", spent)
	stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
		Model: "gpt", MaxOutputTokens: openai.Int(10), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello")},
	})
	text := ""
	for stream.Next() {
		e := stream.Current()
		text += e.Delta
		spent += uint64(e.Response.Usage.TotalTokens)
	}
	if err := stream.Err(); err != nil || !strings.HasPrefix(text, "word0 word1 ") {
		t.Errorf("%v: %s", err, text)
	}
	f.charged(t, "openai", spent)
	if got := f.upstream.Spent(); uint64(got) != spent || f.count(t, "openai").Unknown != 0 {
		t.Errorf("the upstream has spent %d, the limit charged %d", got, spent)
	}
}

// TestOpenAIErrors: what the API refuses costs nothing, what the gateway refuses is an error that the
// client understands, and a stream without usage, or one that breaks off, costs its estimate.
func TestOpenAIErrors(t *testing.T) {
	f := start(t)
	client := f.openai()
	var failure *openai.Error
	if _, err := client.Chat.Completions.New(t.Context(), chat("error", 100)); !errors.As(err, &failure) || failure.StatusCode != 400 {
		t.Errorf("the API's error arrives as %v", err)
	}
	f.charged(t, "openai", 0)
	if _, err := client.Chat.Completions.New(t.Context(), chat("gpt", 1001)); !errors.As(err, &failure) || failure.StatusCode != 429 {
		t.Errorf("a refusal arrives as %v", err)
	}
	stream := client.Chat.Completions.NewStreaming(t.Context(), chat("gpt", 100)) // without include_usage
	for stream.Next() {
	}
	if stream.Err() != nil {
		t.Error(stream.Err())
	}
	estimate := f.count(t, "openai").Estimated
	waitUnknown(t, f, "openai", 1)
	c := f.count(t, "openai")
	f.charged(t, "openai", c.Estimated-firstEstimate(t, chat("error", 100)))
	if estimate > c.Estimated {
		t.Errorf("%d, then %d", estimate, c.Estimated)
	}
	cut := client.Chat.Completions.NewStreaming(t.Context(), chat("cut", 100))
	for cut.Next() {
	}
	if cut.Err() == nil {
		t.Error("the client does not notice that the stream broke off")
	}
	waitUnknown(t, f, "openai", 2)
}

// firstEstimate is what a request is estimated at that costs nothing in the end.
func firstEstimate(t *testing.T, params openai.ChatCompletionNewParams) uint64 {
	t.Helper()
	body, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(100 + (len(body)+3)/4)
}

func waitUnknown(t *testing.T, f *front, limit string, want uint64) {
	t.Helper()
	for deadline := time.After(30 * time.Second); f.count(t, limit).Unknown != want; {
		select {
		case <-deadline:
			t.Fatalf("%s: %+v, want %d unknown", limit, f.count(t, limit), want)
		case <-time.After(time.Millisecond):
		}
	}
}

func message(model string, most int64) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(model), MaxTokens: most,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello"))},
	}
}

// TestAnthropic: as TestOpenAI, with Anthropic's client; a stream that breaks off costs what was
// seen of it.
func TestAnthropic(t *testing.T) {
	f := start(t)
	client := f.anthropic()
	var spent uint64
	for _, model := range []string{"claude", "tool"} {
		answer, err := client.Messages.New(t.Context(), message(model, 100))
		if err != nil {
			t.Fatal(err)
		}
		if model == "tool" && answer.Content[0].Name != "weather" {
			t.Errorf("content: %+v", answer.Content)
		}
		spent += uint64(answer.Usage.InputTokens + answer.Usage.OutputTokens)
		f.charged(t, "anthropic", spent)

		stream := client.Messages.NewStreaming(t.Context(), message(model, 100))
		var all anthropic.Message
		for stream.Next() {
			if err := all.Accumulate(stream.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if stream.Err() != nil || all.Usage.OutputTokens != 20 {
			t.Fatalf("%v, %+v", stream.Err(), all.Usage)
		}
		spent += uint64(all.Usage.InputTokens + all.Usage.OutputTokens)
		f.charged(t, "anthropic", spent)
	}
	if got := f.upstream.Spent(); uint64(got) != spent {
		t.Errorf("the upstream has spent %d, the limit charged %d", got, spent)
	}
	var failure *anthropic.Error
	if _, err := client.Messages.New(t.Context(), message("error", 100)); !errors.As(err, &failure) || failure.StatusCode != http.StatusBadRequest {
		t.Errorf("the API's error arrives as %v", err)
	}
	if _, err := client.Messages.New(t.Context(), message("claude", 1001)); !errors.As(err, &failure) || failure.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a refusal arrives as %v", err)
	}
	f.charged(t, "anthropic", spent)
	cut := client.Messages.NewStreaming(t.Context(), message("cut", 100))
	for cut.Next() {
	}
	if cut.Err() == nil {
		t.Error("the client does not notice that the stream broke off")
	}
	waitUnknown(t, f, "anthropic", 1)
	if got := f.count(t, "anthropic").Actual - spent; got < 10 || got > 60 { // the prompt, and the first token
		t.Errorf("a stream that broke off costs %d", got)
	}
}

// TestGemini: as events and as an array, by a plain client.
func TestGemini(t *testing.T) {
	f := start(t)
	for i, url := range []string{"/v1beta/models/gemini:generateContent", "/v1beta/models/gemini:streamGenerateContent?alt=sse", "/v1beta/models/gemini:streamGenerateContent"} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", f.url+url, strings.NewReader(`{"contents":[{"parts":[{"text":"Hello"}]}],"generationConfig":{"maxOutputTokens":10}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Goog-Api-Key", "key")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			t.Errorf("%d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
		f.charged(t, "gemini", uint64(f.upstream.Spent()))
		if f.upstream.Spent() != int64(i+1)*int64(10+85/4+1) {
			t.Errorf("the upstream has spent %d", f.upstream.Spent())
		}
	}
}
