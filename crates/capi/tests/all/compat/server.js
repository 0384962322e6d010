const { readFileSync } = require('fs');
const pair = { cert: readFileSync('cert.pem'), key: readFileSync('key.pem') };
const server = require('https').createServer(pair, (_, answer) => answer.end('Node\n'));
server.listen(process.argv[2], '127.0.0.1');
