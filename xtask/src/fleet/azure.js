// Makes a container in a double of Azure's storage, by a request that is signed with the account's key.
// usage: node container.js PORT ACCOUNT KEY CONTAINER

const crypto = require('crypto');
const http = require('http');

const [port, account, key, container] = process.argv.slice(2);
const fields = { 'x-ms-date': new Date().toUTCString(), 'x-ms-version': '2021-12-02' };
const named = Object.entries(fields).map(([name, value]) => `${name}:${value}\n`).join('');
// Methods and the eleven fields that may be signed, all of them empty; then Azure's own, and the path.
const text = `PUT${'\n'.repeat(12)}${named}/${account}/${account}/${container}\nrestype:container`;
const hmac = crypto.createHmac('sha256', Buffer.from(key, 'base64'));
fields.authorization = `SharedKey ${account}:${hmac.update(text).digest('base64')}`;
const path = `/${account}/${container}?restype=container`;
const request = http.request({ host: '127.0.0.1', port, method: 'PUT', path, headers: fields });
request.on('response', (answer) => {
  answer.pipe(process.stderr);
  answer.on('end', () => process.exit(answer.statusCode === 201 ? 0 : 1));
});
request.end();
