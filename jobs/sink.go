package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

func newSink(s *store.Store, c Config) (pipeline.Sink, error) {
	if c.sink != nil {
		return c.sink, nil
	}
	if c.SinkURL == "" {
		return tableSink{s, c.SinkTimeout}, nil
	}
	webhook, err := pipeline.NewWebhook(c.SinkURL, c.SinkSecret, c.SinkTimeout)
	if err != nil {
		return nil, err
	}
	return webhookSink{s, webhook}, nil
}

// tableSink writes to the features table, in the transaction that marks the event
// processed.
type tableSink struct {
	store   *store.Store
	timeout time.Duration
}

func (t tableSink) Deliver(ctx context.Context, d *pipeline.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err := t.store.Complete(ctx, d.Event, d.Tries, &store.Feature{Properties: d.Properties, WKB: d.WKB})
	var pgErr *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, dlq.ErrSuperseded), store.Unavailable(err):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &pipeline.DeliveryError{Class: dlq.ClassUpstreamTimeout, Transient: true,
			Text: fmt.Sprintf("the features table: no answer in %s", t.timeout)}
	case errors.As(err, &pgErr):
		// 22xxx, data_exception: the data's fault. Else the table's, which may be mended.
		data := strings.HasPrefix(pgErr.Code, "22")
		class := dlq.ClassUpstreamError
		if data {
			class = dlq.ClassUnknown
		}
		return &pipeline.DeliveryError{Class: class, Transient: !data, Text: "the features table: " + pgErr.Message}
	}
	return err
}

// webhookSink posts to a URL and then marks the event processed. Where the mark
// is lost the feature is posted again, at the same key.
type webhookSink struct {
	store   *store.Store
	webhook *pipeline.Webhook
}

func (w webhookSink) Deliver(ctx context.Context, d *pipeline.Delivery) error {
	if err := w.webhook.Post(ctx, d); err != nil {
		return err
	}
	return w.store.Complete(ctx, d.Event, d.Tries, nil)
}
