// Each thing that Apache's Go client can ask for, once; what came of it is a JSON line. Arguments: name server, prefix of
// topics and groups, and the steps to take (all if there are none). The topics told and cloned must be there with their
// messages, three in the first, quota with its attribute, and order with its configuration; what administrators do with groups
// comes from outside.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

type program struct {
	servers  primitive.NamesrvAddr
	prefix   string
	producer rocketmq.Producer
}

type step struct {
	name string
	take func() (any, error)
}

func main() {
	rlog.SetLogLevel("error")
	p := &program{servers: primitive.NamesrvAddr{os.Args[1]}, prefix: os.Args[2]}
	must(p.start())
	steps := []step{
		{"send", p.send}, {"async", p.async}, {"oneway", p.oneway}, {"batch", p.batch}, {"tags", p.tags},
		{"orderly", p.orderly}, {"broadcast", p.broadcast}, {"delay", p.delay}, {"retry", p.retry},
		{"deadLetter", p.deadLetter}, {"transaction", p.transaction}, {"request", p.request}, {"sql", p.sql},
		{"large", p.large}, {"pull", p.pull}, {"namespace", p.namespace}, {"trace", p.trace}, {"cloned", p.cloned},
		{"told", p.told},
		{"quota", p.quota}, {"order", p.order}, {"busy", p.busy},
	}
	wanted := map[string]bool{}
	for _, name := range os.Args[3:] {
		wanted[name] = true
	}
	var running sync.WaitGroup // they mostly wait
	for _, each := range steps {
		if len(wanted) > 0 && !wanted[each.name] {
			continue
		}
		running.Add(1)
		go func(each step) {
			defer running.Done()
			line := map[string]any{"name": each.name}
			if result, err := each.take(); err != nil {
				line["fault"] = err.Error()
			} else {
				line["result"] = result
			}
			tell("step", line)
		}(each)
	}
	running.Wait()
	must(p.producer.Shutdown())
}

func tell(event string, line map[string]any) {
	line["event"] = event
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (p *program) start() error {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer(p.servers), producer.WithGroupName(p.prefix+"-producers"), producer.WithRetry(0),
		producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return err
	}
	p.producer = made
	return made.Start()
}

func (p *program) topic(name string) string { return p.prefix + "-" + name }

func (p *program) message(topic string, number int) *primitive.Message {
	message := primitive.NewMessage(p.topic(topic), []byte(fmt.Sprintf("%s-%d ü", topic, number)))
	message.WithTag(fmt.Sprintf("tag%d", number%2)).WithKeys([]string{fmt.Sprintf("key-%d", number)})
	message.WithProperty("number", fmt.Sprint(number))
	return message
}

// fill sends messages 0 to count-1 to a topic, one by one.
func (p *program) fill(topic string, count int) error {
	for number := 0; number < count; number++ {
		if _, err := p.producer.SendSync(context.Background(), p.message(topic, number)); err != nil {
			return err
		}
	}
	return nil
}

type handler func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult

// consume gives messages of a topic to handle until done is closed, or until patience is over.
func (p *program) consume(topic string, group string, selector consumer.MessageSelector, done chan struct{}, handle handler,
	options ...consumer.Option) error {
	options = append([]consumer.Option{
		consumer.WithNameServer(p.servers), consumer.WithGroupName(p.topic(group)),
		consumer.WithInstance(p.topic(group)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	err = made.Subscribe(topic, selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			if result := handle(ctx, message); result != consumer.ConsumeSuccess {
				return result, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err = made.Start(); err != nil {
		return err
	}
	defer made.Shutdown()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("not done after %s", patience)
	}
}

// collect gives the bodies of the first count different messages of a topic, sorted unless they are wanted as they come.
func (p *program) collect(topic string, group string, selector consumer.MessageSelector, count int, sorted bool,
	options ...consumer.Option) (any, error) {
	var lock sync.Mutex
	var bodies []string
	seen, done := map[string]bool{}, make(chan struct{})
	err := p.consume(topic, group, selector, done, func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		lock.Lock()
		defer lock.Unlock()
		body := string(message.Body)
		if !seen[body] {
			seen[body] = true
			bodies = append(bodies, body)
			if len(bodies) == count {
				close(done)
			}
		}
		return consumer.ConsumeSuccess
	}, options...)
	lock.Lock()
	defer lock.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.Join(bodies, ", "))
	}
	if sorted {
		sort.Strings(bodies)
	}
	return strings.Join(bodies, ", "), nil
}

var all = consumer.MessageSelector{}

func (p *program) send() (any, error) {
	result, err := p.producer.SendSync(context.Background(), p.message("send", 7))
	if err != nil {
		return nil, err
	}
	if result.Status != primitive.SendOK || len(result.OffsetMsgID) != 32 {
		return nil, fmt.Errorf("%s", result)
	}
	return p.collect(p.topic("send"), "send", all, 1, true)
}

func (p *program) async() (any, error) {
	answered := make(chan error, 3)
	for number := 0; number < 3; number++ {
		err := p.producer.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			answered <- err
		}, p.message("async", number))
		if err != nil {
			return nil, err
		}
	}
	for number := 0; number < 3; number++ {
		if err := <-answered; err != nil {
			return nil, err
		}
	}
	return p.collect(p.topic("async"), "async", all, 3, true)
}

func (p *program) oneway() (any, error) {
	if err := p.fill("oneway", 1); err != nil { // the topic is there then
		return nil, err
	}
	if err := p.producer.SendOneWay(context.Background(), p.message("oneway", 1)); err != nil {
		return nil, err
	}
	return p.collect(p.topic("oneway"), "oneway", all, 2, true)
}

func (p *program) batch() (any, error) {
	_, err := p.producer.SendSync(context.Background(), p.message("batch", 0), p.message("batch", 1), p.message("batch", 2))
	if err != nil {
		return nil, err
	}
	return p.collect(p.topic("batch"), "batch", all, 3, true)
}

func (p *program) tags() (any, error) {
	if err := p.fill("tags", 4); err != nil {
		return nil, err
	}
	return p.collect(p.topic("tags"), "tags", consumer.MessageSelector{Type: consumer.TAG, Expression: "tag1 || tag9"}, 2, true)
}

func (p *program) orderly() (any, error) {
	ordered, err := rocketmq.NewProducer(producer.WithNameServer(p.servers), producer.WithGroupName(p.prefix+"-ordered"),
		producer.WithInstanceName(p.prefix+"-ordered"), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return nil, err
	}
	if err = ordered.Start(); err != nil {
		return nil, err
	}
	defer ordered.Shutdown()
	for number := 0; number < 5; number++ {
		if _, err = ordered.SendSync(context.Background(), p.message("orderly", number).WithShardingKey("one")); err != nil {
			return nil, err
		}
	}
	return p.collect(p.topic("orderly"), "orderly", all, 5, false, consumer.WithConsumerOrder(true))
}

func (p *program) broadcast() (any, error) {
	if err := p.fill("broadcast", 2); err != nil {
		return nil, err
	}
	first, err := p.collect(p.topic("broadcast"), "broadcast", all, 2, true, consumer.WithConsumerModel(consumer.BroadCasting))
	if err != nil {
		return nil, err
	}
	second, err := p.collect(p.topic("broadcast"), "broadcast", all, 2, true,
		consumer.WithConsumerModel(consumer.BroadCasting), consumer.WithInstance(p.prefix+"-another"))
	return fmt.Sprint(first == second), err
}

func (p *program) delay() (any, error) {
	if err := p.fill("delay", 1); err != nil {
		return nil, err
	}
	sent := time.Now()
	if _, err := p.producer.SendSync(context.Background(), p.message("delay", 1).WithDelayTimeLevel(2)); err != nil {
		return nil, err
	}
	bodies, err := p.collect(p.topic("delay"), "delay", all, 2, true)
	return fmt.Sprintf("%s, early %t", bodies, time.Since(sent) < 5*time.Second), err
}

// retry fails a message twice: it comes again after the delay it asks for, with its number of tries.
func (p *program) retry() (any, error) {
	if err := p.fill("retry", 1); err != nil {
		return nil, err
	}
	var lock sync.Mutex
	var tries []int32
	done := make(chan struct{})
	err := p.consume(p.topic("retry"), "retry", all, done, func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		lock.Lock()
		defer lock.Unlock()
		tries = append(tries, message.ReconsumeTimes)
		if message.ReconsumeTimes < 2 {
			concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
			concurrently.DelayLevelWhenNextConsume = 1
			return consumer.ConsumeRetryLater
		}
		if message.ReconsumeTimes == 2 {
			close(done)
		}
		return consumer.ConsumeSuccess
	})
	lock.Lock()
	defer lock.Unlock()
	return fmt.Sprint(tries), err
}

// deadLetter has a message that fails with its first retry as the last read from where the dead ones go.
func (p *program) deadLetter() (any, error) {
	if err := p.fill("dead", 1); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	var once sync.Once
	err := p.consume(p.topic("dead"), "dead", all, done, func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
		concurrently.DelayLevelWhenNextConsume = 1
		if message.ReconsumeTimes >= 1 {
			once.Do(func() { time.AfterFunc(3*time.Second, func() { close(done) }) })
		}
		return consumer.ConsumeRetryLater
	}, consumer.WithMaxReconsumeTimes(1))
	if err != nil {
		return nil, err
	}
	return p.collect("%DLQ%"+p.topic("dead"), "undertaker", all, 1, true)
}

type decisions struct{}

func (decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch message.GetProperty("number") {
	case "0":
		return primitive.CommitMessageState
	case "1":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (decisions) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

// transaction commits one, rolls one back, and lets the broker ask for the third.
func (p *program) transaction() (any, error) {
	sender, err := rocketmq.NewTransactionProducer(decisions{}, producer.WithNameServer(p.servers),
		producer.WithGroupName(p.prefix+"-transactions"), producer.WithInstanceName(p.prefix+"-transactions"))
	if err != nil {
		return nil, err
	}
	if err = sender.Start(); err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	if _, err = p.producer.SendSync(context.Background(), p.message("transaction", 9)); err != nil {
		return nil, err
	}
	for number := 0; number < 3; number++ {
		if _, err = sender.SendMessageInTransaction(context.Background(), p.message("transaction", number)); err != nil {
			return nil, err
		}
	}
	return p.collect(p.topic("transaction"), "transaction", all, 3, true)
}

func (p *program) request() (any, error) {
	if err := p.fill("request", 1); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go p.consume(p.topic("request"), "request", all, done, func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		reply, err := consumer.CreateReplyMessage(message, nil)
		if err != nil {
			return consumer.ConsumeSuccess // the one that made the topic
		}
		reply.Body = append([]byte("answer to "), message.Body...) // 2.1.2 takes what it is given for properties
		time.Sleep(time.Second)                                    // the asking producer's first heartbeat may come after its request
		if _, err = p.producer.SendSync(context.Background(), reply); err != nil {
			fmt.Fprintln(os.Stderr, "reply:", err)
		}
		return consumer.ConsumeSuccess
	})
	defer close(done)
	reply, err := p.producer.Request(context.Background(), patience, p.message("request", 1))
	if err != nil {
		return nil, err
	}
	return string(reply.Body), nil
}

func (p *program) sql() (any, error) {
	if err := p.fill("sql", 4); err != nil {
		return nil, err
	}
	return p.collect(p.topic("sql"), "sql",
		consumer.MessageSelector{Type: consumer.SQL92, Expression: "number BETWEEN 1 AND 2 OR TAGS IS NULL"}, 2, true)
}

// large is compressed on its way: its consumer is told so.
func (p *program) large() (any, error) {
	body := strings.Repeat("large ü ", 2000)
	message := p.message("large", 0)
	message.Body = []byte(body)
	if _, err := p.producer.SendSync(context.Background(), message); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	var result string
	err := p.consume(p.topic("large"), "large", all, done, func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		if result == "" {
			result = fmt.Sprintf("whole %t, compressed %t", string(message.Body) == body, message.SysFlag&primitive.FlagCompressed != 0)
			close(done)
		}
		return consumer.ConsumeSuccess
	})
	return result, err
}

// pull is what a pull consumer polls and acknowledges.
func (p *program) pull() (any, error) {
	if err := p.fill("pull", 3); err != nil {
		return nil, err
	}
	puller, err := rocketmq.NewPullConsumer(consumer.WithNameServer(p.servers), consumer.WithGroupName(p.topic("pull")),
		consumer.WithInstance(p.topic("pull")), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err = puller.Subscribe(p.topic("pull"), all); err != nil {
		return nil, err
	}
	if err = puller.Start(); err != nil {
		return nil, err
	}
	defer puller.Shutdown()
	seen, deadline := map[string]bool{}, time.Now().Add(patience)
	for len(seen) < 3 && time.Now().Before(deadline) {
		polled, err := puller.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, message := range polled.GetMsgList() {
			seen[string(message.Body)] = true
		}
		puller.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	bodies := []string{}
	for body := range seen {
		bodies = append(bodies, body)
	}
	sort.Strings(bodies)
	return strings.Join(bodies, ", "), nil
}

// namespace is that of a tenant, in front of the names of topics and groups.
func (p *program) namespace() (any, error) {
	tenant := p.topic("tenant")
	sender, err := rocketmq.NewProducer(producer.WithNameServer(p.servers), producer.WithGroupName(p.prefix+"-tenants"),
		producer.WithInstanceName(p.prefix+"-tenants"), producer.WithNamespace(tenant))
	if err != nil {
		return nil, err
	}
	if err = sender.Start(); err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	if _, err = sender.SendSync(context.Background(), p.message("namespace", 0)); err != nil {
		return nil, err
	}
	within, err := p.collect(p.topic("namespace"), "namespace", all, 1, true, consumer.WithNamespace(tenant))
	if err != nil {
		return nil, err
	}
	outside, err := p.collect(tenant+"%"+p.topic("namespace"), "outside", all, 1, true)
	return fmt.Sprintf("%s; %s", within, outside), err
}

// trace is what a producer tells of a message it has sent.
func (p *program) trace() (any, error) {
	config := &primitive.TraceConfig{Access: primitive.Local, Resolver: primitive.NewPassthroughResolver(p.servers)}
	sender, err := rocketmq.NewProducer(producer.WithNameServer(p.servers), producer.WithGroupName(p.prefix+"-traced"),
		producer.WithInstanceName(p.prefix+"-traced"), producer.WithTrace(config))
	if err != nil {
		return nil, err
	}
	if err = sender.Start(); err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	if _, err = sender.SendSync(context.Background(), p.message("trace", 0)); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	var found string
	err = p.consume("RMQ_SYS_TRACE_TOPIC", "trace", all, done, func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		fields := strings.Split(string(message.Body), "\x01")
		if found == "" && len(fields) > 6 && fields[4] == p.topic("trace") {
			found = strings.Join([]string{fields[0], fields[3], fields[4], fields[6], fields[7]}, ", ")
			close(done)
		}
		return consumer.ConsumeSuccess
	})
	return found, err
}

// quota sends until it is refused, as it has to be soon.
func (p *program) quota() (any, error) {
	for number := 0; number < 1000; number++ {
		if _, err := p.producer.SendSync(context.Background(), p.message("quota", number)); err != nil {
			return strings.Contains(err.Error(), "quota of 5 messages a second; try again in"), nil
		}
	}
	return nil, fmt.Errorf("not refused")
}

// cloned consumes for a group that has another group's offsets.
func (p *program) cloned() (any, error) {
	return p.collect(p.topic("cloned"), "cloned", all, 1, false)
}

// told has a consumer do what administrators ask of it, until it has had each message anew.
func (p *program) told() (any, error) {
	var lock sync.Mutex
	times := map[string]int{}
	done := make(chan struct{})
	err := p.consume(p.topic("told"), "told", all, done, func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		lock.Lock()
		defer lock.Unlock()
		tell("told", map[string]any{"text": string(message.Body)})
		times[string(message.Body)]++
		again := 0
		for _, count := range times {
			if count > 1 {
				again++
			}
		}
		if times[string(message.Body)] == 2 && again == 3 {
			close(done)
		}
		return consumer.ConsumeSuccess
	})
	return "each anew", err
}

// order tells the queues that messages of an order topic go to.
func (p *program) order() (any, error) {
	queues := map[int]bool{}
	for number := 0; number < 12; number++ {
		result, err := p.producer.SendSync(context.Background(), p.message("order", number))
		if err != nil {
			return nil, err
		}
		queues[result.MessageQueue.QueueId] = true
	}
	return fmt.Sprint(queues), nil
}

// busy begins transactions that nobody ends, until the broker takes no more of them: what it says then.
func (p *program) busy() (any, error) {
	sender, err := rocketmq.NewTransactionProducer(decisions{}, producer.WithNameServer(p.servers), producer.WithRetry(2),
		producer.WithGroupName(p.prefix+"-busy"), producer.WithInstanceName(p.prefix+"-busy"))
	if err != nil {
		return nil, err
	}
	if err = sender.Start(); err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	for number := 2; number < 10; number++ {
		if _, err = sender.SendMessageInTransaction(context.Background(), p.message("busy", number)); err != nil {
			return err.Error(), nil
		}
	}
	return nil, fmt.Errorf("not refused")
}
