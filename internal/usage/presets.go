package usage

// slot is a number that a preset reads.
type slot uint8

const (
	slotPrompt     slot = iota // tokens of the prompt
	slotCached                 // tokens of the prompt that were read from a cache
	slotWritten                // tokens of the prompt that were written to a cache
	slotCompletion             // tokens of the answer
	slotBegun                  // tokens of the answer at the start of a stream, part of slotCompletion
	slotThoughts               // tokens of thinking that are not in slotCompletion
	slotTools                  // tokens of tool results that are not in slotPrompt
	slotTotal                  // all tokens
	slotCount
)

// part is a share of a usage that can have a weight of its own. The parts other than the total do
// not overlap: each token is in one of them.
type part uint8

const (
	partTotal      part = iota
	partPrompt          // without what was read from a cache or written to one
	partCached          // read from a cache
	partCacheWrite      // written to a cache
	partCompletion      // with thinking
)

var partNames = [...]string{"total", "prompt", "cached", "cache_write", "completion"}

// preset is how an API tells its usage.
type preset struct {
	name   string
	fields []presetField
	final  []slot // any of them is there once the usage is complete
	// the usage is in each event of a stream: it is complete only at the end of the response
	cumulative bool
	// the prompt's tokens contain those of the cache
	promptHasCache bool
}

// presetField is a number with the paths at which it stands: in a response, and in events.
type presetField struct {
	slot  slot
	paths []string
}

// presets returns the presets:
//
//   - openai: chat completions (usage in the body, or in the last event with
//     stream_options.include_usage), responses (usage in the body, or in response.completed),
//     embeddings and images
//   - anthropic: messages (usage in the body; or in message_start, and then in message_delta)
//   - gemini: generateContent and streamGenerateContent, as events or as an array
func presets() []*preset {
	return []*preset{
		{
			name: "openai", promptHasCache: true, final: []slot{slotCompletion, slotTotal},
			fields: []presetField{
				{slotPrompt, []string{"usage.prompt_tokens", "usage.input_tokens", "response.usage.input_tokens"}},
				{slotCached, []string{"usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens",
					"response.usage.input_tokens_details.cached_tokens"}},
				{slotCompletion, []string{"usage.completion_tokens", "usage.output_tokens", "response.usage.output_tokens"}},
				{slotTotal, []string{"usage.total_tokens", "response.usage.total_tokens"}},
			},
		},
		{
			name: "anthropic", final: []slot{slotCompletion},
			fields: []presetField{
				{slotPrompt, []string{"usage.input_tokens", "message.usage.input_tokens"}},
				{slotCached, []string{"usage.cache_read_input_tokens", "message.usage.cache_read_input_tokens"}},
				{slotWritten, []string{"usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"}},
				{slotCompletion, []string{"usage.output_tokens"}},
				{slotBegun, []string{"message.usage.output_tokens"}},
			},
		},
		{
			name: "gemini", cumulative: true, promptHasCache: true, final: []slot{slotPrompt, slotTotal},
			fields: []presetField{
				{slotPrompt, []string{"usageMetadata.promptTokenCount"}},
				{slotCached, []string{"usageMetadata.cachedContentTokenCount"}},
				{slotCompletion, []string{"usageMetadata.candidatesTokenCount"}},
				{slotThoughts, []string{"usageMetadata.thoughtsTokenCount"}},
				{slotTools, []string{"usageMetadata.toolUsePromptTokenCount"}},
				{slotTotal, []string{"usageMetadata.totalTokenCount"}},
			},
		},
	}
}

// of returns a part of a usage. It reports false on overflow.
func (p *preset) of(which part, v []number) (n int64, ok bool) {
	prompt, cached, written := v[slotPrompt].n, v[slotCached].n, v[slotWritten].n
	if p.promptHasCache {
		prompt = max(prompt-cached, 0)
	}
	completion, thoughts := v[slotCompletion].n, v[slotThoughts].n
	if !v[slotCompletion].set {
		completion = v[slotBegun].n
	}
	switch which {
	case partPrompt:
		return add(prompt, v[slotTools].n)
	case partCached:
		return cached, true
	case partCacheWrite:
		return written, true
	case partCompletion:
		return add(completion, thoughts)
	}
	if n, ok = add(prompt, cached, written, completion, thoughts, v[slotTools].n); v[slotTotal].set && v[slotTotal].n > n {
		n = v[slotTotal].n // it has what the parts do not tell
	}
	return n, ok
}

func add(all ...int64) (total int64, ok bool) {
	for _, n := range all {
		if total, ok = sum(total, 1, n); !ok {
			return 0, false
		}
	}
	return total, true
}
