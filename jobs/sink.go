package jobs

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

func newSink(s *store.Store, c Config) (pipeline.Sink, error) {
	if c.SinkURL == "" {
		return tableSink{s}, nil
	}
	webhook, err := pipeline.NewWebhook(c.SinkURL, c.SinkSecret, c.SinkTimeout)
	if err != nil {
		return nil, err
	}
	return webhookSink{s, webhook}, nil
}

// tableSink writes to the features table, in the transaction that marks the event
// processed.
type tableSink struct{ store *store.Store }

func (t tableSink) Deliver(ctx context.Context, d *pipeline.Delivery) error {
	err := t.store.Complete(ctx, d.Event, d.Tries, &store.Feature{Properties: d.Properties, WKB: d.WKB})
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "22") { // data_exception
		return &pipeline.DeliveryError{Class: dlq.ClassUnknown, Text: "the features table refused it: " + pgErr.Message}
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
