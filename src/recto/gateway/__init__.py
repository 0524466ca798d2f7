"""The gateway: any client of OpenAI's or Anthropic's APIs gets a bounded prompt and a lossless history."""
