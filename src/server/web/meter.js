// The timings of an answer, as text.
import { count, duration, figure, plural } from "./dom.js";

// Time to the first token, and tokens per second after it. The usage at the end of the stream has the number of
// tokens; until it arrives, each piece of text counts as one.
export class Meter {
  #start = performance.now();
  #first = null;
  #last = null;
  #pieces = 0;
  #usage = null;
  #finish = null;

  take(chunk) {
    if (chunk.usage) this.#usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (choice?.finish_reason) this.#finish = choice.finish_reason;
    if (!choice?.delta?.content) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#pieces += 1;
  }

  // Truncated by the end of the context, not by a requested limit.
  filled(contextTokens) {
    return this.#finish === "length" && this.#usage !== null && this.#usage.total_tokens >= contextTokens;
  }

  text(end = null) {
    const out = [];
    const tokens = this.#usage?.completion_tokens ?? this.#pieces;
    if (this.#first !== null) {
      const seconds = (this.#last - this.#first) / 1000;
      out.push(plural(tokens, "token"));
      if (tokens > 1 && seconds > 0) out.push(`${figure((tokens - 1) / seconds)} tokens/s`);
      out.push(`first after ${duration((this.#first - this.#start) / 1000)}`);
    }
    const cached = this.#usage?.prompt_tokens_details?.cached_tokens ?? 0;
    if (this.#usage) out.push(`prompt ${count(this.#usage.prompt_tokens)}${cached > 0 ? `, ${count(cached)} cached` : ""}`);
    const why = end ?? (this.#finish === "length" ? "cut at the limit" : null);
    if (why) out.push(why);
    return out.join(" · ");
  }
}
