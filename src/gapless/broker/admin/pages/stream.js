// Requests to the broker of this page, and streams of server-sent events that are read with fetch,
// because an EventSource cannot show a token. A stream that ends or breaks is asked for again.

const TOKEN = "gapless token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN) || "",
  set: (text) => sessionStorage.setItem(TOKEN, text),
};

function headers(more = {}) {
  const shown = token.get();
  return shown ? { ...more, Authorization: `Bearer ${shown}` } : more;
}

export async function ask(path, query = {}, options = {}) {
  const text = new URLSearchParams(query).toString();
  const answer = await fetch(text ? `${path}?${text}` : path, {
    ...options,
    headers: headers(options.headers),
    cache: "no-store",
  });
  if (answer.status === 401 || answer.status === 403) {
    throw Object.assign(new Error((await answer.text()).trim()), { refused: true });
  }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer;
}

export const askJson = async (...all) => (await ask(...all)).json();

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Calls `take` with each message until `stop` is called; `lost` when the broker does not answer.
export function watch(path, query, take, lost = () => {}) {
  const controller = new AbortController();
  const run = async () => {
    while (!controller.signal.aborted) {
      try {
        const answer = await ask(path, query, { signal: controller.signal });
        await readEvents(answer.body, take);
      } catch (problem) {
        if (controller.signal.aborted) return;
        lost(problem);
        await pause(1000);
      }
    }
  };
  run();
  return () => controller.abort();
}

async function readEvents(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) take(JSON.parse(part.slice(6)));
    }
  }
}
