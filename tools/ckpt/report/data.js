'use strict';
// The data of the page, and how it is written. Texts of checkpoints are hostile: they reach the page as
// text nodes and as values of attributes that are no code, never as HTML.

const data = JSON.parse(document.getElementById('data').textContent);

const tensors = data.tensors.map(([key, dtype, shape, bytes, tied, error, figures], index) => ({
  index, key, dtype, shape, bytes, tied, error,
  elements: shape.reduce((product, size) => product * size, 1),
  figures: figures && {
    min: figures[0], max: figures[1], mean: figures[2], deviation: figures[3],
    zeros: figures[4], nans: figures[5], infinities: figures[6],
    bins: Array.from(figures[7], digitValue),
  },
}));

function hasBadNumbers(tensor) {
  return tensor.figures !== null && tensor.figures.nans + tensor.figures.infinities > 0;
}

// See HistogramDigits in report.cc.
function digitValue(digit) {
  return '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_'.indexOf(digit);
}

// Elements. Attributes that are false or null are left out; strings become text.

function setUp(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function element(name, attributes = {}, ...children) {
  return setUp(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return setUp(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

// Texts.

// A text of the checkpoint on one line: characters that are not seen, or that change the direction of
// writing, are written as escapes.
function printable(text, most = 300) {
  const cut = text.length > most ? text.slice(0, most) + '…' : text;
  return cut.replace(
    /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
    (c) => '\\u' + c.codePointAt(0).toString(16).padStart(4, '0'));
}

// So that layer 2 is before layer 10.
const compareText = new Intl.Collator('en', {numeric: true}).compare;

const thousands = new Intl.NumberFormat('en');

function countText(count) {
  return thousands.format(count);
}

// "124.4 M"
function shortCount(count) {
  const units = ['', ' K', ' M', ' B', ' T'];
  let unit = 0;
  for (; count >= 999.95 && unit + 1 < units.length; ++unit) count /= 1000;
  return (unit === 0 ? String(count) : count.toFixed(count < 10 ? 2 : 1)) + units[unit];
}

// "1.5 GiB", as SizeText in output.cc.
function sizeText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

function plural(count, noun) {
  return `${countText(count)} ${noun}${count === 1 ? '' : 's'}`;
}

function shareText(part, whole) {
  if (whole === 0) return '0 %';
  const percent = 100 * part / whole;
  if (percent > 0 && percent < 0.1) return '< 0.1 %';
  return percent.toFixed(percent < 10 ? 1 : 0) + ' %';
}

// A figure with four digits.
function figureText(value) {
  if (value === null) return '';
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(3).replace('e+', 'e');
  return String(Number(value.toPrecision(4)));
}

function shapeText(sizes) {
  return sizes.length === 0 ? 'scalar' : sizes.join(' × ');
}

// Histograms.

// A histogram as one path, in a box of this size, that stands on y = `height`.
function barsPath(bins, width, height) {
  const step = width / bins.length;
  let path = '';
  bins.forEach((bin, i) => {
    if (bin === 0) return;
    const top = Math.max(1, (bin - 1) / 62 * height);  // See HistogramDigits.
    const [x, rise] = [(i * step).toFixed(2), top.toFixed(2)];
    path += `M${x} ${height}v-${rise}h${(step * 0.86).toFixed(2)}v${rise}z`;
  });
  return path;
}

// Where `value` is in the range of the elements, from 0 to 1.
function placeOf(value, figures) {
  return (value - figures.min) / (figures.max - figures.min);
}

function histogramLabel(figures) {
  return `histogram from ${figureText(figures.min)} to ${figureText(figures.max)}`;
}

function smallHistogram(figures) {
  const [width, height] = [96, 22];
  const image = svg('svg', {
    class: 'histogram', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
    'aria-label': histogramLabel(figures),
  });
  if (figures.min < 0 && figures.max > 0) {
    const x = (placeOf(0, figures) * width).toFixed(2);
    image.append(svg('path', {class: 'zero', d: `M${x} 0V${height}`}));
  }
  image.append(svg('path', {class: 'bars', d: barsPath(figures.bins, width, height)}));
  return image;
}
