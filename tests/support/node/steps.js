// What the Node client ali-ons can ask for, each thing once; what came of it is a JSON line. Arguments: name server, prefix of
// topics and groups. The topics must be there: this client makes none.
'use strict';

const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const [ nameSrv, prefix ] = process.argv.slice(2);
const patience = 60000;
const quiet = { info() {}, warn() {}, debug() {}, error() {} };
const common = { httpclient, nameSrv, logger: quiet };

let producer;

function message(topic, number) {
  const made = new Message(`${prefix}-${topic}`, `tag${number % 2}`, `${topic}-${number} ü`);
  made.keys = [ `key-${number}` ];
  made.properties.number = String(number);
  return made;
}

async function send(topic, count) {
  for (let number = 0; number < count; number++) {
    const result = await producer.send(message(topic, number));
    if (result.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(result));
  }
}

// Gives messages of a topic to handle until it says that it has enough, by anything that is true.
function consume(topic, subscription, handle, options = {}) {
  const consumer = new Consumer({
    ...common, consumerGroup: `${prefix}-${topic}-group`, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', ...options,
  });
  consumer.on('error', () => {});
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('not done in time')), patience);
    consumer.subscribe(`${prefix}-${topic}`, subscription, async found => {
      const enough = await handle(found);
      if (enough) {
        clearTimeout(timer);
        setTimeout(() => resolve(enough), 500);
      }
    });
  }).finally(() => consumer.close());
}

function bodies(topic, subscription, count) {
  const seen = new Set();
  return consume(topic, subscription, found => {
    seen.add(found.body.toString());
    return seen.size === count && [ ...seen ].sort().join(', ');
  });
}

const steps = {
  async send() {
    await send('send', 3);
    return bodies('send', '*', 3);
  },
  async tags() {
    await send('tags', 4);
    return bodies('tags', 'tag1 || tag9', 2);
  },
  async properties() {
    await send('properties', 1);
    return consume('properties', '*', found => `${found.tags}/${found.keys}/${found.properties.number}`);
  },
  async delay() {
    const late = message('delay', 0);
    late.delayTimeLevel = 2;
    const sent = Date.now();
    await producer.send(late);
    const found = await bodies('delay', '*', 1);
    return `${found}, early ${Date.now() - sent < 5000}`;
  },
  async retry() {
    await send('retry', 1);
    const tries = [];
    return consume('retry', '*', found => {
      tries.push(found.reconsumeTimes);
      if (found.reconsumeTimes === 0) throw new Error('later');
      return tries.join(', ');
    });
  },
  async sql() {
    await send('sql', 4);
    return bodies('sql', { expressionType: 'SQL92', subString: 'number BETWEEN 1 AND 2' }, 2);
  },
};

(async () => {
  producer = new Producer({ ...common, producerGroup: `${prefix}-producers` });
  producer.on('error', () => {});
  await producer.ready();
  for (const [ name, take ] of Object.entries(steps)) {
    const line = { event: 'step', name };
    try {
      line.result = await take();
    } catch (error) {
      line.error = String(error);
    }
    console.log(JSON.stringify(line));
  }
  process.exit(0);
})();
