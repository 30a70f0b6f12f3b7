// What the Node client ali-ons can ask for, each thing once; what came of it is a JSON line. Arguments: name server, prefix of
// topics and groups. The topics must be there: this client makes none. So must the messages of told, three, and of
// cloned, and the configuration of order; what administrators do with these groups comes from outside.
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

// Gives messages of a topic to handle until it says that it has enough, by anything that is true, or to its second argument.
function consume(topic, subscription, handle, { from = `${prefix}-${topic}`, ...options } = {}) {
  const consumer = new Consumer({
    ...common, consumerGroup: `${prefix}-${topic}-group`, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', instanceName: topic,
    ...options,
  });
  consumer.on('error', () => {});
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('not done in time')), patience);
    const finish = result => {
      clearTimeout(timer);
      setTimeout(() => resolve(result), 500);
    };
    consumer.subscribe(from, subscription, async found => {
      const enough = await handle(found, finish);
      if (enough) finish(enough);
    });
  }).finally(() => consumer.close());
}

function bodies(topic, subscription, count, options) {
  const seen = new Set();
  return consume(topic, subscription, found => {
    seen.add(found.body.toString());
    return seen.size === count && [ ...seen ].sort().join(', ');
  }, options);
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
  async broadcast() {
    await send('broadcast', 2);
    const members = [ 'one', 'two' ].map(instanceName => bodies('broadcast', '*', 2, { isBroadcast: true, instanceName }));
    return (await Promise.all(members)).join('; ');
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
  async large() {
    const body = 'large ü '.repeat(2000);
    await producer.send(Object.assign(message('large', 0), { body: Buffer.from(body) }));
    return consume('large', '*', found => `whole ${found.body.toString() === body}, compressed ${(found.sysFlag & 1) === 1}`);
  },
  async deadLetter() {
    await send('deadLetter', 1);
    await consume('deadLetter', '*', (found, finish) => {
      if (found.reconsumeTimes === 1) finish(true);
      throw new Error('never');
    }, { maxReconsumeTimes: 1 });
    return bodies('undertaker', '*', 1, { from: `%DLQ%${prefix}-deadLetter-group` });
  },
  async namespace() {
    const namespace = `${prefix}-tenant`;
    const sender = new Producer({ ...common, producerGroup: `${prefix}-tenants`, instanceName: 'tenant', namespace });
    await sender.ready();
    await sender.send(message('namespace', 0));
    const within = await bodies('namespace', '*', 1, { namespace, instanceName: 'tenant' });
    await sender.close();
    return `${within}; ${await bodies('outside', '*', 1, { from: `${namespace}%${prefix}-namespace` })}`;
  },
  async quota() {
    for (let number = 0; number < 1000; number++) {
      try {
        await send('quota', 1);
      } catch (error) {
        return /quota of 5 messages a second; try again in/.test(error.message);
      }
    }
    throw new Error('not refused');
  },
  async order() {
    const queues = new Set();
    for (let number = 0; number < 12; number++) {
      queues.add((await producer.send(message('order', number))).messageQueue.queueId);
    }
    return [ ...queues ].sort().join(', ');
  },
  async cloned() {
    return consume('cloned', '*', found => found.body.toString());
  },
  async sql() {
    await send('sql', 4);
    return bodies('sql', { expressionType: 'SQL92', subString: 'number BETWEEN 1 AND 2' }, 2);
  },
};

// Has a consumer do what administrators ask of it, until it has had each message anew.
function told() {
  const times = new Map();
  return consume('told', '*', found => {
    const text = found.body.toString();
    console.log(JSON.stringify({ event: 'told', text }));
    times.set(text, (times.get(text) || 0) + 1);
    return [ ...times.values() ].filter(count => count > 1).length === 3 && 'each anew';
  });
}

(async () => {
  producer = new Producer({ ...common, producerGroup: `${prefix}-producers` });
  producer.on('error', () => {});
  await producer.ready();
  const take = async (name, step) => {
    const line = { event: 'step', name };
    try {
      line.result = await step();
    } catch (error) {
      line.fault = String(error);
    }
    console.log(JSON.stringify(line));
  };
  await Promise.all(Object.entries({ ...steps, told }).map(([ name, step ]) => take(name, step)));
  process.exit(0);
})();
