package sim

import (
	"encoding/json"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/usage"
	"github.com/weirflow/weir/policy"
)

// A Response is what a line of a log says of the response, and of what the request cost.
type Response struct {
	policy.Logged
	Estimate int64  // of the cost, before the request; below 1: not known
	Body     string // the fields of the request's body that the line has, as a JSON object
}

// unknownResponse is that of a line that says nothing.
var unknownResponse = Response{Logged: policy.Logged{Cost: -1, Logged: usage.Logged{
	Prompt: -1, Cached: -1, Written: -1, Completion: -1, Total: -1, Bytes: -1, Duration: -1, Upstream: -1,
}}}

// maxDuration is the longest duration that is believed: charges stay open in memory until then.
const maxDuration = 24 * time.Hour

// common sets what the Common format has.
func (r *Response) common(status, size string) {
	r.Status = twoDigits(status[:2])*10 + int(status[2]-'0')
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
		r.Bytes = n
	} else if size == "-" {
		r.Bytes = 0
	}
}

// Field names of responses and costs, as Envoy AI Gateway's documentation, LiteLLM, OpenTelemetry,
// nginx, Caddy, Traefik and our own access log write them. The first one present counts.
var (
	statusNames     = []string{"status", "response_code", "status_code", "DownstreamStatus", "EdgeResponseStatus"}
	bytesNames      = []string{"bytes", "bytes_sent", "body_bytes_sent", "size", "DownstreamContentSize", "EdgeResponseBytes"}
	modelNames      = []string{"gen_ai.request.model", "genai_model_name", "model_group", "model"}
	promptNames     = []string{"genai_tokens_input", "gen_ai.usage.input_tokens", "llm_input_token", "prompt_tokens", "input_tokens", "usage.prompt_tokens", "usage.input_tokens"}
	cachedNames     = []string{"genai_tokens_cached_input", "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_input_tokens", "llm_cached_input_token", "usage.prompt_tokens_details.cached_tokens", "metadata.usage_object.prompt_tokens_details.cached_tokens"}
	writtenNames    = []string{"genai_tokens_cache_creation_input", "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens", "llm_cache_creation_input_token", "metadata.usage_object.cache_creation_input_tokens"}
	completionNames = []string{"genai_tokens_output", "gen_ai.usage.output_tokens", "llm_output_token", "completion_tokens", "output_tokens", "usage.completion_tokens", "usage.output_tokens"}
	totalNames      = []string{"genai_tokens_total", "gen_ai.usage.total_tokens", "llm_total_token", "total_tokens", "usage.total_tokens"}
)

// The fields with costs, unless Options name others.
const (
	defaultEstimate = "estimated_cost"
	defaultCost     = "actual_cost"
)

// response sets what a JSON line says of the response.
func (p *parser) response(it *item, f map[string]any) {
	r := it.response
	set := func(to *int64, names ...string) {
		if n, ok := wholeNumber(firstValue(f, names)); ok && n >= 0 {
			*to = n
		}
	}
	set(&r.Estimate, or(p.estimate, defaultEstimate))
	set(&r.Cost, or(p.cost, defaultCost))
	set(&r.Prompt, promptNames...)
	set(&r.Cached, cachedNames...)
	set(&r.Written, writtenNames...)
	set(&r.Completion, completionNames...)
	set(&r.Total, totalNames...)
	set(&r.Bytes, bytesNames...)
	if n, ok := wholeNumber(firstValue(f, statusNames)); ok && n >= 100 && n <= 999 {
		r.Status = int(n)
	} else if firstValue(f, statusNames) == "failure" { // LiteLLM
		r.Status = 500
	}
	if r.Duration, r.Upstream = durations(it.at, f); f["decision"] == "deny" {
		r.Duration = -1 // our gateway refused it, so it says nothing about the work
	}
	r.Body = requestFields(f)
}

func or(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// durations returns how long the response and its header took; below 0: not known.
func durations(began int64, f map[string]any) (whole, header time.Duration) {
	whole, header = -1, -1
	take := func(to *time.Duration, unit time.Duration, names ...string) {
		if d, ok := duration(firstValue(f, names), unit); ok && *to < 0 {
			*to = d
		}
	}
	if end := firstValue(f, []string{"endTime"}); end != nil { // LiteLLM
		if at, err := jsonTime(end); err == nil && at >= began {
			whole = min(time.Duration(at-began), maxDuration)
		}
	}
	unit := time.Second
	if f["start_time"] != nil { // Envoy
		unit = time.Millisecond
	}
	take(&whole, unit, "duration")
	take(&whole, time.Millisecond, "duration_ms", "request_duration_ms")
	take(&whole, time.Second, "request_time")
	take(&whole, time.Nanosecond, "Duration")
	take(&header, time.Millisecond, "x-envoy-upstream-service-time")
	take(&header, time.Second, "upstream_time", "upstream_header_time")
	return whole, header
}

// duration reads a number of units, or a text with a unit of its own.
func duration(v any, unit time.Duration) (time.Duration, bool) {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		if d, err := time.ParseDuration(v); err == nil && d >= 0 {
			return min(d, maxDuration), true
		}
		text = v
	}
	n, ok := new(big.Rat).SetString(text)
	if len(text) > 40 || strings.ContainsAny(text, "/eE_xXoOpP") || !ok || n.Sign() < 0 {
		return 0, false
	}
	n.Mul(n, new(big.Rat).SetInt64(int64(unit)))
	if n.Cmp(new(big.Rat).SetInt64(int64(maxDuration))) >= 0 {
		return maxDuration, true
	}
	return time.Duration(new(big.Int).Quo(n.Num(), n.Denom()).Int64()), true
}

// requestFields returns the fields of the request's body that a line has: the model, and LiteLLM's
// model_parameters.
func requestFields(f map[string]any) string {
	body := map[string]any{}
	if parameters, ok := f["model_parameters"].(map[string]any); ok {
		for name, value := range parameters {
			body[name] = value
		}
	}
	if n, ok := wholeNumber(f["max_tokens"]); ok {
		body["max_tokens"] = n
	}
	if model, ok := firstValue(f, modelNames).(string); ok && model != "-" {
		body["model"] = model
	}
	if len(body) == 0 {
		return ""
	}
	text, err := json.Marshal(body)
	if err != nil || len(text) > math.MaxUint16 {
		return ""
	}
	return string(text)
}

// liteLLM sets the request of a line of LiteLLM, which has no method and no path, but the kind of the
// call.
func (it *item) liteLLM(f map[string]any) {
	call, _ := f["call_type"].(string)
	if call == "" || f["startTime"] == nil {
		return
	}
	it.method = "POST"
	switch call {
	case "completion", "acompletion":
		it.target = "/v1/chat/completions"
	case "text_completion", "atext_completion":
		it.target = "/v1/completions"
	case "embedding", "aembedding":
		it.target = "/v1/embeddings"
	case "responses", "aresponses":
		it.target = "/v1/responses"
	case "anthropic_messages":
		it.target = "/v1/messages"
	case "image_generation", "aimage_generation":
		it.target = "/v1/images/generations"
	default:
		it.target = "/" + call
	}
	if key, ok := firstValue(f, []string{"metadata.user_api_key_hash", "api_key", "user_api_key_hash"}).(string); ok {
		it.header.Set("Authorization", "Bearer "+key)
		if firstValue(f, clientNames) == nil {
			it.client = key // such as a call without a client's address: its key stands for the client
		}
	}
}

// withoutPort returns the address of ADDRESS:PORT, as Envoy writes it.
func withoutPort(client string) string {
	if a, err := netip.ParseAddrPort(client); err == nil {
		return a.Addr().String()
	}
	return client
}
