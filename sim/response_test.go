package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/usage"
	"github.com/weirflow/weir/policy"
)

// envoyLine and liteLLMLine are lines as the documentation of the two products shows them, with values
// of our own.
const (
	envoyLine = `{":authority":"llm.example","bytes_received":401,"bytes_sent":432,"connection_termination_details":null,
"downstream_local_address":"10.0.0.1:1975","downstream_remote_address":"%s:64484","duration":%d,
"genai_backend_name":"default/a/route/b/rule/0/ref/0","genai_model_name":"small","genai_model_name_override":null,
"genai_tokens_input":%d,"genai_tokens_output":%d,"genai_tokens_total":%d,"method":"POST","protocol":"HTTP/1.1",
"response_code":%d,"response_flags":"-","start_time":"%s","upstream_host":"10.0.0.2:443","user-agent":"curl/8.7.1",
"x-envoy-origin-path":"/v1/chat/completions","x-envoy-upstream-service-time":"451","x-forwarded-for":"10.9.9.9"}`
	liteLLMLine = `{"id":"chatcmpl-1","call_type":"acompletion","response_cost":0.1,"status":"success","total_tokens":30,
"prompt_tokens":20,"completion_tokens":10,"startTime":1735689600.5,"endTime":1735689602.5,"completionStartTime":1735689601.0,
"model":"openai/gpt-x","model_group":"fast","metadata":{"user_api_key_hash":"88dc","requester_ip_address":"10.1.2.3",
"usage_object":{"prompt_tokens_details":{"cached_tokens":4}}},"model_parameters":{"max_tokens":50},"error_str":null}`
	spendLine = `{"request_id":"req-1","call_type":"anthropic_messages","api_key":"88dc","spend":0.00042,"total_tokens":18,"prompt_tokens":10,
"completion_tokens":8,"startTime":"2026-02-26T03:47:24.123456+00:00","endTime":"2026-02-26T03:47:24.234456+00:00","model":"m","requester_ip_address":null}`
)

func envoy(client string, second, millis, prompt, completion, status int) string {
	at := time.Date(2024, 1, 1, 0, 0, second, 0, time.UTC).Format("2006-01-02T15:04:05.000Z")
	return strings.ReplaceAll(fmt.Sprintf(envoyLine, client, millis, prompt, completion, prompt+completion, status, at), "\n", "") + "\n"
}

func TestResponses(t *testing.T) {
	logged := func(cost, prompt, cached, completion, total, bytes int64, took, upstream time.Duration, status int) policy.Logged {
		return policy.Logged{Status: status, Cost: cost, Logged: usage.Logged{
			Prompt: prompt, Cached: cached, Written: -1, Completion: completion, Total: total, Bytes: bytes, Duration: took, Upstream: upstream,
		}}
	}
	for line, want := range map[string]Entry{
		envoy("10.0.0.9", 0, 1526, 15, 7, 200): {
			Time: at("2024-01-01T00:00:00Z"), Client: "10.0.0.9", Method: "POST", Target: "/v1/chat/completions", Host: "llm.example", Length: 401,
			Response: Response{logged(-1, 15, -1, 7, 22, 432, 1526*time.Millisecond, 451*time.Millisecond, 200), 0, `{"model":"small"}`},
		},
		strings.NewReplacer("genai_tokens_input", "gen_ai.usage.input_tokens", "genai_tokens_output", "gen_ai.usage.output_tokens",
			"genai_tokens_total", "gen_ai.usage.total_tokens", "genai_model_name\"", "gen_ai.request.model\"").Replace(envoy("::1", 0, 1, 1, 2, 200)): {
			Time: at("2024-01-01T00:00:00Z"), Client: "::1:64484", Method: "POST", Target: "/v1/chat/completions", Host: "llm.example", Length: 401,
			Response: Response{logged(-1, 1, -1, 2, 3, 432, time.Millisecond, 451*time.Millisecond, 200), 0, `{"model":"small"}`},
		},
		liteLLMLine: {
			Time: at("2025-01-01T00:00:00.5Z"), Client: "10.1.2.3", Method: "POST", Target: "/v1/chat/completions", Length: -1,
			Response: Response{logged(-1, 20, 4, 10, 30, -1, 2*time.Second, -1, 0), 0, `{"max_tokens":50,"model":"fast"}`},
		},
		strings.Replace(liteLLMLine, "success", "failure", 1): {
			Time: at("2025-01-01T00:00:00.5Z"), Client: "10.1.2.3", Method: "POST", Target: "/v1/chat/completions", Length: -1,
			Response: Response{logged(-1, 20, 4, 10, 30, -1, 2*time.Second, -1, 500), 0, `{"max_tokens":50,"model":"fast"}`},
		},
		spendLine: {
			Time: at("2026-02-26T03:47:24.123456Z"), Client: "88dc", Method: "POST", Target: "/v1/messages", Length: -1,
			Response: Response{logged(-1, 10, -1, 8, 18, -1, 111*time.Millisecond, -1, 0), 0, `{"model":"m"}`},
		},
		`{"time":"2024-01-01T00:00:00Z","client":"c","method":"GET","uri":"/","status":200,"bytes":22,"duration":0.000670,"upstream_time":0.5,"estimated_cost":9,"actual_cost":"7"}`: {
			Time: at("2024-01-01T00:00:00Z"), Client: "c", Method: "GET", Target: "/", Length: -1,
			Response: Response{logged(7, -1, -1, -1, -1, 22, 670*time.Microsecond, 500*time.Millisecond, 200), 9, ""},
		},
		`{"time":1,"client":"c","method":"GET","uri":"/","duration":"1e400","request_time":-1,"actual_cost":1.5,"estimated_cost":-4,"status":"x","max_tokens":5}`: {
			Time: 1e9, Client: "c", Method: "GET", Target: "/", Length: -1,
			Response: Response{logged(-1, -1, -1, -1, -1, -1, -1, -1, 0), 0, `{"max_tokens":5}`},
		},
		`10.0.0.1 - - [01/Jan/2024:00:00:00 +0000] "GET /x HTTP/1.1" 404 1713`: {
			Time: at("2024-01-01T00:00:00Z"), Client: "10.0.0.1", Method: "GET", Target: "/x", Length: -1,
			Response: Response{logged(-1, -1, -1, -1, -1, 1713, -1, -1, 404), 0, ""},
		},
	} {
		got, err := ParseLine(line)
		if strings.Contains(line, "LiteLLM") || got.Header.Get("Authorization") != "" && got.Header.Get("Authorization") != "Bearer 88dc" {
			t.Errorf("%s: %v", line, got.Header)
		}
		got.Header = nil
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v", line, got, err, want)
		}
	}
}

// tokensPolicy counts tokens by client: a minute's worth is 100.
func tokensPolicy(costs policy.Costs) policy.Policy {
	p := perClient(weir.FixedWindow{Limit: 100, Window: time.Minute})
	p.Limits[0].Costs = costs
	return p
}

// TestCosts: estimates are charged when a request comes, and replaced by the true costs when its
// response has ended, in virtual time.
func TestCosts(t *testing.T) {
	openai := policy.Costs{Before: []policy.CostTerm{{Of: "body.max_tokens"}}, Default: 60, After: []policy.CostTerm{{Of: "openai"}}}
	log := envoy("a", 0, 10_000, 5, 5, 200) + // 60 until second 10, and then 10
		envoy("a", 5, 1_000, 5, 5, 200) + // refused: 60 + 60
		envoy("a", 10, 5_000, 20, 60, 200) + // 10 + 60, and then 90
		envoy("a", 14, 1, 1, 1, 200) + // refused
		envoy("a", 15, 1, 1, 1, 500) // refused: 90 + 60
	r, decisions := run1(t, Options{Policy: tokensPolicy(openai)}, log)
	if want := "1\tallow\t-\n2\tdeny\tper-client\n3\tallow\t-\n4\tdeny\tper-client\n5\tdeny\tper-client\n"; decisions != want {
		t.Errorf("got\n%s", decisions)
	}
	if l := r.Limits[0]; l.Estimated != 120 || l.Actual != 90 || l.Unknown != 0 || !l.Settles {
		t.Errorf("%+v", l)
	}
	text, _ := json.Marshal(r)
	if want := `{"requests":5,"unparsed":0,"limits":{"per-client":{"allowed":2,"limited":3,"delayed":0,"cost":{"estimated":120,"actual":90,"unknown":0}}},`; !strings.HasPrefix(string(text), want) {
		t.Errorf("%s", text)
	}
	var out strings.Builder
	if _ = r.WriteText(&out); !strings.Contains(out.String(), "per-client              120            90         0") {
		t.Errorf("%s", out.String())
	}
}

// TestCostsOfOtherLogs: what is charged for one request, by the terms of the policy and what its log has.
func TestCostsOfOtherLogs(t *testing.T) {
	terms := func(all ...string) (of []policy.CostTerm) {
		for _, term := range all {
			of = append(of, policy.CostTerm{Of: term})
		}
		return of
	}
	lite := strings.ReplaceAll(liteLLMLine, "\n", "")
	mine := `{"time":1,"client":"c","method":"GET","uri":"/","status":200,"bytes":22,"duration":0.5,"costs":{"before":33,"after":44},"estimated_cost":8,"actual_cost":9}`
	for _, c := range []struct {
		line                       string
		costs                      policy.Costs
		fields                     [2]string
		estimated, actual, unknown int64
	}{
		{lite, policy.Costs{Before: terms("body.max_tokens"), After: terms("openai")}, [2]string{}, 50, 30, 0},
		{lite, policy.Costs{Before: terms("body.max_tokens"), After: terms("anthropic")}, [2]string{}, 50, 30, 0},
		{lite, policy.Costs{Default: 7, After: terms("openai.prompt", "openai.completion")}, [2]string{}, 7, 26, 0},
		{lite, policy.Costs{Default: 7, After: []policy.CostTerm{{Of: "openai.cached", Weight: 10}, {Of: "openai.cache_write"}}}, [2]string{}, 7, 40, 0},
		{lite, policy.Costs{Default: 7, After: terms("duration")}, [2]string{}, 7, 2000, 0},
		{lite, policy.Costs{Default: 7, After: terms("bytes")}, [2]string{}, 7, 7, 1},
		{lite, policy.Costs{Default: 7, After: terms("json.total"), IfUnknown: "zero"}, [2]string{}, 7, 0, 1},
		{strings.Replace(lite, "success", "failure", 1), policy.Costs{Default: 7, After: terms("openai")}, [2]string{}, 7, 0, 0},
		{strings.Replace(lite, "success", "failure", 1), policy.Costs{Default: 7, After: terms("openai"), CountFailed: true}, [2]string{}, 7, 30, 0},
		{mine, policy.Costs{Before: terms("prompt/4"), After: terms("json.total")}, [2]string{}, 8, 9, 0},
		{mine, policy.Costs{Before: terms("prompt/4"), After: terms("json.total")}, [2]string{"costs.before", "costs.after"}, 33, 44, 0},
		{mine, policy.Costs{Before: terms("5"), After: terms("json.total")}, [2]string{}, 5, 9, 0},
		{mine, policy.Costs{Before: terms("prompt/4"), Default: 12, After: terms("bytes")}, [2]string{"none", "none"}, 12, 22, 0},
		{`c - - [01/Jan/2024:00:00:00 +0000] "GET /x HTTP/1.1" 200 1713`, policy.Costs{Default: 12, After: terms("bytes")}, [2]string{}, 12, 1713, 0},
		{`c - - [01/Jan/2024:00:00:00 +0000] "GET /x HTTP/1.1" 200 -`, policy.Costs{Default: 12, After: terms("bytes")}, [2]string{}, 12, 0, 0},
	} {
		p := tokensPolicy(c.costs)
		r, _ := run1(t, Options{Policy: p, EstimateField: c.fields[0], CostField: c.fields[1]}, c.line)
		if l := r.Limits[0]; l.Estimated != c.estimated || l.Actual != c.actual || l.Unknown != c.unknown {
			t.Errorf("%+v of %s: %+v", c.costs, c.line, l)
		}
	}
}

// TestModelsInLogs: body.model as a part of a key.
func TestModelsInLogs(t *testing.T) {
	p := perClient(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1})
	p.Limits[0].Key = []string{"client.ip", "body.model"}
	lines := envoy("a", 0, 1, 1, 1, 200) + strings.Replace(envoy("a", 1, 1, 1, 1, 200), `"small"`, `"large"`, 1) + envoy("a", 2, 1, 1, 1, 200)
	if _, got := run1(t, Options{Policy: p}, lines); got != "1\tallow\t-\n2\tallow\t-\n3\tdeny\tper-client\n" {
		t.Errorf("got\n%s", got)
	}
}
