// Serves routes by the rules of several frameworks, chosen by the host, and says which route it served.
const http = require('http');

// Express 4: regular expressions without case over the path as it was sent.
function express(path) {
  if (/^\/checkout\/?$/i.test(path)) return 'checkout';
  if (/^\/sale\/?$/i.test(path)) return 'sale';
  if (/^\/item\/([^/]+?)\/?$/i.test(path)) return 'item';
  if (/^\/api\/?(?=\/|$)/i.test(path)) return 'api';
  if (/^\/static\/?(?=\/|$)/i.test(path)) return 'static';
  return /^\/([^/]+?)(?:\/([^/]+?))?\/?$/i.test(path) ? 'page' : '';
}

function resolved(path) {
  const kept = [];
  for (const segment of path.split('/')) {
    if (segment === '..') kept.pop();
    else if (segment !== '' && segment !== '.') kept.push(segment);
  }
  return '/' + kept.join('/') + (/\/\.{0,2}$/.test(path) && kept.length ? '/' : '');
}

const decoded = (path) => { try { return decodeURIComponent(path); } catch { return null; } };

function exact(path) {
  if (path === '/checkout') return 'checkout';
  if (path === '/sale') return 'sale';
  if (/^\/item\/[^/]+$/.test(path)) return 'item';
  if (path === '/api' || path.startsWith('/api/')) return 'api';
  if (path === '/static' || path.startsWith('/static/')) return 'static';
  return 'page';
}

// Tomcat with Spring 5: parameters are dropped, an encoded slash is refused, the final slash and the extension do not matter.
function spring(path) {
  if (/%2f|%5c|\\/i.test(path)) return null;
  path = decoded(path.replace(/;[^/]*/g, ''));
  if (path === null || path.includes('\0')) return null;
  path = resolved(path);
  if (path.length > 1) path = path.replace(/\/$/, '');
  return exact(/^\/(checkout|sale)\.[^/]*$/.test(path) ? path.replace(/\..*/, '') : path);
}

// Rails: doubled slashes and the final one do not matter, and a format may follow.
function rails(path) {
  path = path.replace(/\/+/g, '/').replace(/(.)\/$/, '$1');
  path = path.split('/').map(decoded);
  if (path.includes(null)) return null;
  const last = path.length - 1;
  path[last] = path[last].replace(/\.[^/.?]+$/, '');
  return exact(path.map((s) => s.replaceAll('/', '%2F')).join('/'));
}

// IIS with ASP.NET: backslashes are slashes, dots and spaces at the end of a segment are dropped, and letters are the same in any case.
function iis(path) {
  path = decoded(path);
  if (path === null || path.includes('\0')) return null;
  path = path.replaceAll('\\', '/').split('/').map((s) => s === '.' || s === '..' ? s : s.replace(/[. ]+$/, '')).join('/');
  path = resolved(path).toLowerCase();
  return exact(path.length > 1 ? path.replace(/\/$/, '') : path);
}

// A proxy that decodes and resolves paths, before Express.
function proxied(path) {
  path = decoded(path);
  return path === null ? null : express(resolved(path.split(/[?#]/)[0]));
}

const located = (url, base) => { try { return new URL(url, base).pathname; } catch { return null; } };

// Express behind new URL: dots are resolved, doubled slashes are kept, and // at the beginning is before a host.
function whatwg(path) {
  path = located(path, 'http://x');
  return path === null ? null : express(path);
}

// Envoy before Express: doubled slashes are merged after dots are resolved.
function envoy(path) {
  path = located('http://x' + path);
  return path === null ? null : express(path.replace(/\/+/g, '/'));
}

const frameworks = { express, spring, rails, iis, proxied, whatwg, envoy };

http.createServer((request, response) => {
  const framework = frameworks[request.headers.host.split('.')[0].split('-')[0]] ?? express;
  const served = framework(request.url.split('?')[0]);
  response.setHeader('Content-Type', 'application/json');
  response.statusCode = served === null ? 400 : served === '' ? 404 : 200;
  // checkout takes POST alone, as a shop's does; the others take GET.
  const allow = served === 'checkout' ? 'POST' : 'GET, HEAD';
  if (served && request.method === 'OPTIONS') response.setHeader('Allow', allow);
  else if (served && request.headers['x-any-method'] === undefined && !allow.includes(request.method)) response.statusCode = 404;
  if (request.method === 'POST' && served === 'checkout') orders++;
  response.end(JSON.stringify({ served: response.statusCode === 200 ? served : '', path: request.url, orders }));
}).listen(Number(process.argv[2].split(':')[1]), '127.0.0.1');

let orders = 0;
