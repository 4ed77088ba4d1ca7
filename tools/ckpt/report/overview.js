// The parts of the page that do not change: facts, imports and metadata.

function fact(title, value, note = '', kind = null) {
  return element('div', {class: kind === null ? 'fact' : `fact ${kind}`},
                 element('dt', {}, title), element('dd', {}, value),
                 ...(note === '' ? [] : [element('dd', {class: 'note'}, note)]));
}

function healthTile() {
  const errors = tensors.filter((tensor) => tensor.error !== null).length;
  if (errors > 0) return fact('Values', plural(errors, 'tensor'), 'cannot be read', 'bad');
  if (!data.has_figures) return fact('Values', 'not read', 'headers only');
  const bad = tensors.filter(hasBadNumbers).length;
  if (bad > 0) return fact('Values', plural(bad, 'tensor'), 'with NaN or infinities', 'bad');
  return fact('Values', 'finite', 'no NaN, no infinities', 'good');
}

function countOf(danger) {
  return data.globals.filter(([, verdict]) => verdict === danger).length;
}

function securityTile() {
  if (data.globals.length === 0) return fact('Imports', 'none', 'loading executes nothing', 'good');
  const dangerous = countOf('dangerous');
  if (dangerous > 0) return fact('Imports', `${countText(dangerous)} dangerous`, 'do not load with pickle', 'bad');
  const refused = countOf('refused by weights_only');
  if (refused > 0) return fact('Imports', `${countText(refused)} refused`, 'by weights_only of torch.load', 'doubtful');
  return fact('Imports', plural(data.globals.length, 'global'), 'allowed by weights_only', 'good');
}

// The name of the file, without the directories before it.
function baseName(source) {
  return source.replace(/\/+$/, '').split('/').at(-1) || source;
}

function showOverview() {
  const name = printable(baseName(data.source));
  document.title = `${name} – checkpoint report`;
  byId('name').textContent = name;
  byId('source').textContent = printable(data.source, 1000);
  const tied = tensors.filter((tensor) => tensor.tied !== null).length;
  byId('tiles').append(
    fact('Parameters', shortCount(data.parameters), countText(data.parameters)),
    fact('Tensors', countText(tensors.length), tied > 0 ? `${countText(tied)} tied` : 'none tied'),
    fact('Size', sizeText(data.bytes), `${countText(data.bytes)} bytes`),
    fact('Format', data.format), healthTile(), securityTile());
  showDtypes();
  byId('warnings').append(...data.warnings.map((warning) => element('li', {}, printable(warning, 1000))));
  byId('warnings').hidden = data.warnings.length === 0;
}

// A bar of the bytes by dtype, with its legend.
function showDtypes() {
  const dtypes = Object.entries(data.dtypes).sort((a, b) => b[1].bytes - a[1].bytes);
  const bar = svg('svg', {
    class: 'share', viewBox: '0 0 1000 10', preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  let x = 0;
  const kindOf = (i) => `c${Math.min(i, 7)}`;
  dtypes.forEach(([, {bytes}], i) => {
    const width = data.bytes === 0 ? 0 : 1000 * bytes / data.bytes;
    bar.append(svg('rect', {class: kindOf(i), x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 10}));
    x += width;
  });
  const list = element('ul', {class: 'entries', 'aria-label': 'Bytes by dtype'}, ...dtypes.map(
    ([name, sum], i) => element(
      'li', {class: 'entry'}, element('span', {class: `swatch ${kindOf(i)}`}),
      element('strong', {}, printable(name, 40)),
      ` ${sizeText(sum.bytes)}, ${shareText(sum.bytes, data.bytes)}, ${plural(sum.tensors, 'tensor')}, ${
        plural(sum.parameters, 'parameter')}`)));
  byId('dtypes').append(bar, list);
}

function showImports() {
  const place = byId('imports');
  if (data.globals.length === 0) {
    place.append(element('p', {}, 'The checkpoint imports no class and no function: loading it executes no '
      + 'code of its own.'));
    return;
  }
  const verdicts = [
    ['dangerous', 'bad', 'It runs commands or code, or reaches files or the network.'],
    ['refused by weights_only', 'doubtful', 'torch.load(weights_only=True) refuses it; it may be dangerous, too.'],
    ['allowed', 'good', 'torch.load(weights_only=True) allows it.'],
  ];
  const counts = verdicts.map(([name]) => `${countText(countOf(name))} ${name}`).join(', ');
  place.append(element('p', {}, `The pickles of the checkpoint import ${plural(data.globals.length, 'global')}: ${
    counts}. Nothing was executed to find this out.`));
  const rows = verdicts.flatMap(([verdict, kind, meaning]) => data.globals
    .filter(([, other]) => other === verdict)
    .map(([name]) => element('tr', {}, element('th', {scope: 'row', class: 'key'}, printable(name)),
                             element('td', {}, element('span', {class: `verdict ${kind}`}, verdict)),
                             element('td', {class: 'note'}, meaning))));
  place.append(longTable(['Global', 'Verdict', 'Meaning'], rows));
}

function showValues() {
  const place = byId('values');
  const rows = data.values.map(([name, text, size]) => {
    const shown = element('pre', {}, pretty(text));
    const cell = element('td', {}, shown);
    if (text.length < size) cell.append(element('span', {class: 'note'}, `… ${sizeText(size)} in all`));
    return element('tr', {}, element('th', {scope: 'row', class: 'key'}, printable(name)), cell);
  });
  if (rows.length === 0) place.append(element('p', {}, 'There are no values besides the tensors.'));
  else place.append(longTable(['Name', 'Value'], rows));
  if (data.omitted_values > 0) {
    place.append(element('p', {class: 'note'}, `${plural(data.omitted_values, 'value')} left out; see ckpt info.`));
  }
}

// JSON of an object or a list on several lines if it is long.
function pretty(text) {
  let lines = text;
  if (text.length > 80) {
    try {
      lines = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // It is shortened.
    }
  }
  return lines.split('\n').map((line) => printable(line, 4096)).join('\n');
}

// A table whose rows are added a few hundred at a time.
function longTable(titles, rows) {
  const atOnce = 200;
  const body = element('tbody');
  const table = element('table', {}, element('thead', {}, element('tr', {}, ...titles.map(
    (title) => element('th', {scope: 'col'}, title)))), body);
  const box = element('div', {class: 'scroll'}, table);
  let begin = 0;
  const more = element('button', {type: 'button', class: 'more'});
  const add = () => {
    body.append(...rows.slice(begin, begin + atOnce));
    begin += atOnce;
    more.textContent = `Show more (${countText(rows.length - begin)} left)`;
    more.hidden = begin >= rows.length;
  };
  more.addEventListener('click', add);
  add();
  box.append(more);
  return box;
}
