// Says what Node reads in a request.
const http = require('http');

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

http.createServer((request, response) => {
  const url = new URL('http://node.test' + request.url);
  const cookies = (request.headers.cookie ?? '').split(';').map((pair) => pair.trim().split('='));
  const session = cookies.find(([name]) => name === 'session')?.[1] ?? '';
  response.end(JSON.stringify({
    header: request.headers['x-api-key'] ?? '',
    query: url.searchParams.get('sku_id') ?? '',
    cookie: decoded(session.replace(/^"|"$/g, '')),
    admin: /^\/admin(\/|$)/.test(decoded(url.pathname)),
    length: request.headers['content-length'] ?? '',
  }));
}).listen(Number(process.argv[2].split(':')[1]), '127.0.0.1');
