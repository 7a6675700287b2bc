// Upgrades every request that asks for it, and sends back each byte that comes, to the last one.
const { createHash } = require('crypto');
const http = require('http');

http.createServer().on('upgrade', (request, socket, head) => {
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.on('error', () => {});
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ' + accept + '\r\n\r\n');
  socket.write(head);
  socket.pipe(socket);
}).listen(Number(process.argv[2].split(':')[1]), '127.0.0.1');
