// Package llm proves limits on tokens with the official clients of OpenAI and Anthropic, through a
// real gateway, in front of an upstream that streams as theirs do.
package llm
