package policy

import (
	"fmt"
	"slices"
	"strings"
)

// promptField returns the field in which requests to the API of a preset bound the completion; "" for
// what is no preset.
func promptField(preset string) string {
	switch preset {
	case "openai":
		return "body.max_completion_tokens|max_output_tokens|max_tokens"
	case "anthropic":
		return "body.max_tokens"
	case "gemini":
		return "body.generationConfig.maxOutputTokens"
	}
	return ""
}

// prompt warns of an estimate that leaves out the prompt, which the true cost has. A client that
// prevents the true cost, as by a stream of which it does not ask for the usage, pays the estimate.
func (c *checker) prompt(l *Limit, at []string) {
	preset, weight := chargesPrompt(l.Costs.After)
	if preset == "" || slices.ContainsFunc(l.Costs.Before, func(t CostTerm) bool {
		return t.Of == "learned" || strings.HasPrefix(t.Of, "prompt/")
	}) {
		return
	}
	c.warn("a response that does not tell its usage, as a stream of which the client has not asked for it, is charged the estimate, and that leaves out the prompt",
		promptFix(l.Costs.Before, preset, weight), append(slices.Clone(at), "before")...)
}

// chargesPrompt returns the preset by which costs have the tokens of the prompt, and their weight.
func chargesPrompt(after []CostTerm) (preset string, weight int64) {
	for _, t := range after {
		name, part, _ := strings.Cut(t.Of, ".")
		if promptField(name) != "" && (part == "" || part == "total" || part == "prompt") {
			return name, max(t.Weight, 1)
		}
	}
	return "", 0
}

// promptFix is an estimate with the prompt. Without one that a request bounds, it has the field of the
// API that does.
func promptFix(before []CostTerm, preset string, weight int64) string {
	terms := []CostTerm{{Of: "prompt/4", Weight: weight}}
	for _, t := range before {
		if t.Of != "0" {
			terms = append(terms, t)
		}
	}
	if len(terms) == 1 {
		terms = append(terms, CostTerm{Of: promptField(preset), Weight: weight})
	}
	var texts []string
	for _, t := range terms {
		text := t.Of
		if strings.Contains(text, "|") {
			text = `"` + text + `"`
		}
		if t.Weight > 1 {
			text = fmt.Sprintf("{ of: %s, weight: %d }", text, t.Weight)
		}
		texts = append(texts, text)
	}
	fix := "before: [" + strings.Join(texts, ", ") + "]"
	if len(before) > 0 {
		return "replace before with: " + fix
	}
	return "add to cost: " + fix
}
