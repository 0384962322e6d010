// The types, by the compiler in the folder TYPESCRIPT (with `typescript` and `@types/node`); and the package as npm packs it.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const test = require('node:test');
const { folder } = require('./support/machine.js');

const PACKAGE = path.join(__dirname, '..');
const { TYPESCRIPT } = process.env;
const TSC = TYPESCRIPT && path.join(TYPESCRIPT, 'node_modules/typescript/bin/tsc');
const NO_TSC = !(TSC && fs.existsSync(TSC)) && 'NOT TESTED: set TYPESCRIPT to a folder with typescript (make target/typescript)';

test('a program’s types are checked against the package’s', { skip: NO_TSC }, (t) => {
  const made = folder(t);
  const modules = path.join(made, 'node_modules');
  fs.mkdirSync(modules);
  fs.symlinkSync(PACKAGE, path.join(modules, 'rejoin-tls'));
  const given = path.join(path.resolve(TYPESCRIPT), 'node_modules');
  for (const name of ['@types', 'undici-types']) fs.symlinkSync(path.join(given, name), path.join(modules, name));
  const sources = fs.readdirSync(path.join(__dirname, 'types'));
  for (const name of sources) fs.copyFileSync(path.join(__dirname, 'types', name), path.join(made, name));
  const strict = ['--strict', '--noEmit', '--preserveSymlinks', '--target', 'es2022', '--module', 'nodenext', '--types', 'node'];
  const { status, stdout } = spawnSync(process.execPath, [TSC, ...strict, ...sources], { cwd: made, encoding: 'utf8' });
  assert.strictEqual(status, 0, stdout);
});

test('what is imported is what is required, and what the types declare', async () => {
  const required = require('rejoin-tls');
  const imported = await import('rejoin-tls');
  assert.deepStrictEqual(Object.keys(imported).sort(), Object.keys(required).sort());
  for (const [name, value] of Object.entries(required)) assert.strictEqual(imported[name], value);
  const types = fs.readFileSync(path.join(PACKAGE, 'index.d.ts'), 'utf8');
  const declared = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepStrictEqual(declared.sort(), Object.keys(required).sort());
});

test('the package has all that it needs, and nothing else', () => {
  const manifest = JSON.parse(fs.readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'));
  assert.deepStrictEqual([manifest.dependencies, manifest.scripts.install], [undefined, undefined]);
  const npm = spawnSync('npm', ['pack', '--dry-run', '--json', '--offline'], { cwd: PACKAGE, encoding: 'utf8' });
  if (npm.error) return;
  const packed = JSON.parse(npm.stdout)[0].files.map((file) => file.path);
  const lib = fs.readdirSync(path.join(PACKAGE, 'lib')).map((name) => `lib/${name}`);
  const own = ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'index.d.mts', 'index.d.ts', 'index.js', 'index.mjs', 'package.json'];
  assert.deepStrictEqual(packed.sort(), [...own, ...lib].sort());
});
