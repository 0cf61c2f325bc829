// Requests to the server. The key, if one is needed, is kept in memory and nowhere else.

let key = null;
let askForKey = null;

export function onKeyNeeded(ask) {
  askForKey = ask;
}

export function setKey(value) {
  key = value;
}

export class ServerError extends Error {}

async function send(path, options) {
  const headers = { ...options.headers };
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
  if (response.status === 401) {
    askForKey();
    throw new ServerError(key === null ? "Enter the key of this server." : "This key is not right.");
  }
  if (!response.ok) throw new ServerError(await reasonIn(response));
  return response;
}

async function reasonIn(response) {
  try {
    const { error } = await response.json();
    return typeof error === "string" ? error : error.message;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

export async function get(path) {
  return (await send(path, {})).json();
}

function posted(path, body, signal) {
  return send(path, {
    method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
}

export async function post(path, body) {
  return (await posted(path, body)).json();
}

export async function postForFile(path, body) {
  return (await posted(path, body)).blob();
}

export async function postFile(path, file) {
  return (await send(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file })).json();
}
