// Says what Node reads in a request: in X-Seen what a message is about, in the body what a limit may be about.
const crypto = require('crypto');
const http = require('http');

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

const server = http.createServer((request, response) => {
  const hash = crypto.createHash('sha256');
  let length = 0;
  request.on('data', (part) => { hash.update(part); length += part.length; });
  request.on('error', () => {});
  request.on('end', () => {
    const url = new URL('http://node.test' + request.url);
    const cookies = (request.headers.cookie ?? '').split(';').map((pair) => pair.trim().split('='));
    const session = cookies.find(([name]) => name === 'session')?.[1] ?? '';
    const { host, 'user-agent': agent } = request.headers;
    response.setHeader('X-Seen', [request.method, request.url, host, length, hash.digest('hex').slice(0, 8), agent].map((part) => part ?? '-').join(' '));
    response.end(JSON.stringify({
      method: request.method,
      header: request.headers['x-api-key'] ?? '',
      query: url.searchParams.get('sku_id') ?? '',
      cookie: decoded(session.replace(/^"|"$/g, '')),
      admin: /^\/admin(\/|$)/.test(decoded(url.pathname)),
      length: request.headers['content-length'] ?? '',
    }));
  });
});
server.keepAliveTimeout = 0; // no limit: a connection ends when the gateway ends it
server.listen(Number(process.argv[2].split(':')[1]), '127.0.0.1');
