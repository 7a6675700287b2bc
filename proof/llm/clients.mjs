// Calls the API behind BASE_URL with the official clients, one call for each line of stdin
// (CLIENT CALL MODEL MAX_TOKENS), and answers with a line of JSON: what the client has read.
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import readline from "node:readline";

const base = process.env.BASE_URL;
const openai = new OpenAI({ baseURL: base + "/v1/", apiKey: "key", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: "key", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }];

const calls = {
  async "openai chat"(model, most) {
    const r = await openai.chat.completions.create({ model, max_tokens: most, messages });
    return { tokens: r.usage.total_tokens, text: r.choices[0].message.content, tool: r.choices[0].message.tool_calls?.[0].function.name };
  },
  async "openai stream"(model, most) {
    const all = { tokens: 0, text: "", tool: "" };
    const stream = await openai.chat.completions.create({ model, max_tokens: most, messages, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      all.tokens += chunk.usage?.total_tokens ?? 0;
      all.text += chunk.choices[0]?.delta.content ?? "";
      all.tool += chunk.choices[0]?.delta.tool_calls?.[0].function?.name ?? "";
    }
    return all;
  },
  async "openai responses"(model, most) {
    const r = await openai.responses.create({ model, max_output_tokens: most, input: "Hello" });
    return { tokens: r.usage.total_tokens, text: r.output_text };
  },
  async "openai responses-stream"(model, most) {
    const all = { tokens: 0, text: "" };
    for await (const e of await openai.responses.create({ model, max_output_tokens: most, input: "Hello", stream: true })) {
      all.text += e.type === "response.output_text.delta" ? e.delta : "";
      all.tokens += e.response?.usage?.total_tokens ?? 0;
    }
    return all;
  },
  async "anthropic message"(model, most) {
    const r = await anthropic.messages.create({ model, max_tokens: most, messages });
    return { tokens: r.usage.input_tokens + r.usage.output_tokens, text: r.content[0].text, tool: r.content[0].name };
  },
  async "anthropic stream"(model, most) {
    const r = await anthropic.messages.stream({ model, max_tokens: most, messages }).finalMessage();
    return { tokens: r.usage.input_tokens + r.usage.output_tokens, text: r.content[0].text, tool: r.content[0].name };
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [client, call, model, most] = line.split(" ");
  let answer;
  try {
    answer = await calls[client + " " + call](model, Number(most));
  } catch (e) {
    answer = { error: e.constructor.name, status: e.status ?? 0 };
  }
  console.log(JSON.stringify(answer));
}
