// Compares gannet's rules with an engine of a host, over files made by chance.
//
//   node oracle.mjs netlify|cloudflare '_redirects|_headers|_redirects and _headers' GANNET
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'

const [host, what, gannet] = process.argv.slice(2)
const ROUNDS = 40

// The same files each time.
let seed = 7
const below = n => { seed = (seed * 1103515245 + 12345) & 0x7fffffff; return (seed >> 8) % n }
const pick = list => list[below(list.length)]

const SOURCES = ['/a', '/a/b', '/a/*', '/*', '/:x', '/:x/b', '/a/:y', '/c/:x/:y', '/file', '/folder/x', '/old/*']
const TARGETS = ['/new', '/t/:splat', '/u/:x', '/v/:x/:y', 'https://other.example/p', 'https://other.example/:splat',
  '/new?q=1', '/w/:y#part', 'https://other.example/:x?id=:y', '/file', 'https://matrix.to/#/:room']
const PATHS = ['/', '/a', '/a/', '/a/b', '/a/b/c', '/b', '/c/d/e', '/c/d', '/file', '/folder/x', '/old', '/old/x/y',
  '/q/b', '/a?x=1', '/a/b?utm=2&x=1', '/old/x?y=z']
const NAMES = ['X-A', 'x-a', 'X-B', 'Link', 'Set-Cookie', 'X-Frame-Options']
const COMPARED = ['x-a', 'x-b', 'link', 'set-cookie', 'x-frame-options']

const SITE = ['index.html', 'file', 'folder/x', 'new', 'a/index.html']

function redirects(statuses) {
  const lines = new Set()
  const dynamic = new Map()
  for (let i = 0; i < 1 + below(6); i++) {
    const source = pick(SOURCES)
    // A placeholder that the source lacks is text for one host and empty for the other.
    const has = name => source.includes(name === ':splat' ? '*' : name)
    const target = pick(TARGETS.filter(it => (it.match(/:(splat|x|y)\b/g) ?? []).every(has)))
    const status = pick(statuses)
    if (!dynamic.has(source)) lines.add(`${source} ${target} ${status}`.trim())
    dynamic.set(source, true)
  }
  return [...lines].join('\n') + '\n'
}

function fields() {
  let text = ''
  for (let i = 0; i < 1 + below(5); i++) {
    text += pick(SOURCES.filter(it => !text.includes(it + '\n'))) + '\n'
    for (let j = 0; j < 1 + below(3); j++) text += `  ${pick(NAMES)}: v${below(100)}\n`
    if (host === 'cloudflare' && below(4) === 0) text += `  ! ${pick(NAMES)}\n`
  }
  return text
}

// What Netlify's engine says of a path: { status, location }, or null where no rule applies.
async function netlifyRedirects(text) {
  const { default: redirector } = await import('netlify-redirector')
  const matcher = await redirector.parsePlain(text, {})
  return path => {
    const url = new URL(path, 'http://site.example')
    const match = matcher.match({
      scheme: 'http', host: 'site.example', path: url.pathname, query: url.search.slice(1),
      headers: {}, cookieValues: {}, getHeader: () => '', getCookie: () => '',
    })
    return match?.to ? { status: match.status, location: match.to, isForced: match.force } : null
  }
}

// The query of a request is passed on by what calls the engine, unless the target has its own.
function withQuery(location, asked) {
  const [, query] = asked.split('?')
  if (!query || location.includes('?')) return location
  const [path, fragment] = location.split('#')
  return `${path}?${query}${fragment === undefined ? '' : '#' + fragment}`
}

async function netlifyFields(text) {
  const { parseAllHeaders } = await import('@netlify/headers-parser')
  fs.writeFileSync('parsed', text)
  const { headers, errors } = await parseAllHeaders({ headersFiles: ['parsed'], minimal: false })
  if (errors.length) throw errors[0]
  const matches = (source, path) => new RegExp('^' + source.replace(/\/\*$/, '(/.*)?')
    .replace(/:[a-z]+/g, '[^/]+') + '/?$').test(path)
  return path => {
    const result = {}
    for (const { for: source, values } of headers) {
      if (!matches(source, path)) continue
      const own = {}
      for (const [name, value] of Object.entries(values)) {
        const lower = name.toLowerCase()
        own[lower] = own[lower] ? `${own[lower]}, ${value}` : value
      }
      Object.assign(result, own)
    }
    return result
  }
}

// What Cloudflare's own handler answers, for rules in the form that its build hands it.
async function cloudflare(redirectsText, fieldsText) {
  const { generateHandler } = await import('@cloudflare/pages-shared/dist/asset-server/handler.js')
  const { createMetadataObject } =
    await import('@cloudflare/pages-shared/dist/metadata-generator/createMetadataObject.js')
  const rules = redirectsText.trim().split('\n').map((line, at) => {
    const [from, to, status] = line.split(' ')
    return { from, to, status: +(status || 302), lineNumber: at + 1 }
  })
  const fieldRules = []
  for (const line of fieldsText.trim().split('\n')) {
    if (line.startsWith('/')) fieldRules.push({ path: line, headers: {}, unsetHeaders: [] })
    else if (line.trim().startsWith('!')) fieldRules.at(-1).unsetHeaders.push(line.trim().slice(1).trim())
    else {
      const [name, value] = line.trim().toLowerCase().split(': ')
      const { headers } = fieldRules.at(-1)
      headers[name] = headers[name] ? `${headers[name]}, ${value}` : value
    }
  }
  const metadata = createMetadataObject({
    redirects: { rules, invalid: [] }, headers: { rules: fieldRules, invalid: [] },
    logger: { debug() {}, log() {}, info() {}, warn() {}, error() {} },
  })
  const find = path => {
    const name = decodeURIComponent(path).slice(1)
    return SITE.includes(name) ? name : null
  }
  return async path => {
    const answer = await generateHandler({
      request: new Request('https://site.example' + path), metadata, xServerEnvHeader: '', logError: console.error,
      setMetrics: () => {}, findAssetEntryForPath: find, getAssetKey: name => name,
      negotiateContent: () => ({ encoding: null }), fetchAsset: name => ({ body: name, contentType: 'text/plain' }),
      generateNotFoundResponse: () => new Response('', { status: 404 }),
    })
    const all = Object.fromEntries(COMPARED.map(name => [name, answer.headers.get(name) ?? '']))
    all['set-cookie'] = answer.headers.getSetCookie().join(', ')
    return { status: answer.status, location: answer.headers.get('location'), fields: all }
  }
}

const ask = (port, path) => new Promise((resolve, reject) => {
  const fields = { host: 'site.example' }
  http.get({ port, path, host: '127.0.0.1', agent: false, headers: fields }, answer => {
    answer.resume()
    answer.on('end', () => resolve(answer))
  }).on('error', reject)
})

// Serves a folder or an archive, and calls back with the port.
async function serve(path, flags, call) {
  const child = spawn(gannet, ['serve', path, ...flags, '--port', '0', '--workers', '1'], { stdio: ['ignore', 'pipe', 'inherit'] })
  const port = await new Promise((resolve, reject) => {
    let text = ''
    child.stdout.on('data', bytes => {
      text += bytes
      const found = text.match(/^at .*?:(\d+)\/?$/m)
      if (found && text.includes('engine ')) resolve(+found[1])
    })
    child.on('exit', () => reject(new Error('gannet ended: ' + text)))
  })
  try {
    await call(port)
  } finally {
    child.removeAllListeners('exit')
    child.kill()
    await new Promise(resolve => child.on('exit', resolve))
  }
}

let compared = 0, differ = 0
function expect(round, text, mode, path, name, got, want) {
  compared++
  if (got === want) return
  differ++
  console.log(`${host} ${mode} ${path}: ${name}: got '${got}', the host has '${want}' (file ${round}):\n${text}`)
}

for (let round = 0; round < ROUNDS; round++) {
  fs.rmSync('site', { recursive: true, force: true })
  for (const name of SITE) {
    const path = `site/${name}`
    fs.mkdirSync(path.slice(0, path.lastIndexOf('/')), { recursive: true })
    fs.writeFileSync(path, name)
  }
  const rules = what.includes('_redirects') ? redirects(host === 'netlify' ? ['', '301', '302', '301!'] : ['', '301', '302', '303', '307', '308']) : ''
  const names = what.includes('_headers') ? fields() : ''
  if (rules) fs.writeFileSync('site/_redirects', rules)
  if (names) fs.writeFileSync('site/_headers', names)
  const text = rules + names
  const of = host === 'cloudflare' ? await cloudflare(rules, names)
    : rules ? await netlifyRedirects(rules) : await netlifyFields(names)
  const packed = spawnSync(gannet, ['pack', 'site', '--fast', '-q', '--compat', host, '-o', 'site.gannet'], { encoding: 'utf8' })
  if (packed.status !== 0) throw new Error(packed.stderr + text)
  for (const [mode, path, flags] of [['directory', 'site', ['--compat', host, '--no-listing']], ['archive', 'site.gannet', []]]) {
    await serve(path, flags, async port => {
      for (const asked of PATHS) {
        const answer = await ask(port, asked)
        const bare = asked.split('?')[0]
        const check = (name, got, want) => expect(round, text, mode, asked, name, got, want)
        if (host === 'netlify' && rules) {
          const hasFile = ['/', '/file', '/folder/x', '/a/', '/a'].includes(bare)
          const match = of(asked)
          if (!match || (hasFile && !match.isForced)) continue
          // A redirect to its own path is ignored here: it would loop.
          if (match.location === bare) continue
          check('status', answer.statusCode, match.status)
          check('location', answer.headers.location, withQuery(match.location, asked))
        } else if (host === 'netlify') {
          const want = of(bare)
          for (const name of COMPARED) {
            check(name, [answer.headers[name] ?? ''].flat().join(', '), want[name] ?? '')
          }
        } else {
          const want = await of(asked)
          const isOwn = want.location && ![301, 302, 303, 307, 308].includes(answer.statusCode)
          // A redirect to its own path is ignored here, and files are found as the manual says.
          if (want.location?.split('?')[0] === bare) continue
          if (want.status === 404 || want.status === 200 || ['/a', '/a/'].includes(bare) && !isOwn && want.status === 308) {
            if (want.status === 200) for (const name of COMPARED) {
              check(name, [answer.headers[name] ?? ''].flat().join(', '), want.fields[name])
            }
            continue
          }
          check('status', answer.statusCode, want.status)
          check('location', answer.headers.location, want.location)
        }
      }
    })
  }
}
console.log(`${host}, ${what}: ${compared} compared, ${differ} differ`)
process.exit(differ ? 1 : 0)
