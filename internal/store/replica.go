package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
)

// ReplicaConfig names a streaming replica of the database and says when it is read.
type ReplicaConfig struct {
	URL      string // of one server: of several, each answers with a lag of its own
	MaxConns int32
	LagMax   time.Duration // further behind, the primary is read
	Schema   int           // the version of the tables that it must have
	Logger   *slog.Logger
}

// ReplicaState is how a replica stood when it was last looked at.
type ReplicaState struct {
	InUse bool          // what only reads letters by a filter is read there
	Sound bool          // it answers, and is a replica of our database; it may be behind
	Why   string        // it is not in use, in words behind "the replica"
	Lag   time.Duration // for how long the primary has had what it has not; within a second
	AsOf  time.Time     // what was committed by then can be read there; zero: not known

	LagMax time.Duration // further behind, it is not in use
}

// UseReplica sends what only reads letters by a filter to a replica, while
// WatchReplica finds it fit: tiles, charts, statistics, lists with their counts,
// extents and exports. Each falls back to the primary by itself. What decides
// something is always read on the primary: a letter and its history before it is acted
// on, orders and what they freeze, the depth of the queue, the state of an event, the
// ledger and its check, and whether the database takes writes. A replica that is away
// is no error. It is called before the Store is used.
func (s *Store) UseReplica(ctx context.Context, c ReplicaConfig) (err error) {
	r := &replica{config: c}
	if r.pool, err = connectReplica(ctx, c.URL, c.MaxConns, &r.sockets); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	r.reach, r.lose = context.WithCancel(context.Background())
	r.state.Why, r.state.LagMax = "was not looked at yet", c.LagMax
	s.replica = r
	return nil
}

// Timeouts of a replica: another server can answer in its place.
const (
	replicaConnect = 2 * time.Second // to connect to it
	replicaCancel  = time.Second     // to have a query cancelled by it
	lookTimeout    = 2 * time.Second // to say how it stands
	lookEvery      = time.Second
)

func connectReplica(ctx context.Context, url string, maxConns int32, of *sockets) (*pgxpool.Pool, error) {
	return connect(ctx, url, func(c *pgxpool.Config) {
		c.MaxConns = maxConns
		of.watch(c)
		if c.ConnConfig.ConnectTimeout == 0 {
			c.ConnConfig.ConnectTimeout = replicaConnect
		}
		c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: replicaCancel}
		}
	})
}

// replica is a streaming replica, as it was last seen. Where there is none it is nil,
// which serves nobody.
type replica struct {
	config  ReplicaConfig
	pool    *pgxpool.Pool
	sockets sockets

	mu       sync.Mutex
	state    ReplicaState
	replayed int64    // LSN, as bytes since the beginning
	origin   *cluster // of the primary; nil: it was not seen yet
	lag      lagMeter
	blind    bool            // the primary did not say how far it is
	reach    context.Context // until the replica is found away
	lose     context.CancelFunc
	lamented time.Time // when a read that fell back was last logged
}

// cluster tells databases apart: streaming replication keeps both.
type cluster struct{ System, Database int64 }

// Replica tells how the replica stands; false: there is none.
func (s *Store) Replica() (ReplicaState, bool) {
	if s.replica == nil {
		return ReplicaState{}, false
	}
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	return s.replica.state, true
}

type contextKey int

const (
	afterKey contextKey = iota
	withoutPrimaryKey
)

// After makes reads under a context see at least what was written at a mark of
// Written: where the replica is not known to have it, they go to the primary.
func After(ctx context.Context, mark int64) context.Context {
	return context.WithValue(ctx, afterKey, mark)
}

// WithoutPrimary makes reads under a context go to the replica however far it is
// behind, those of a letter and its history too: the primary was found away. Without a
// sound replica it changes nothing.
func WithoutPrimary(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutPrimaryKey, true)
}

func withoutPrimary(ctx context.Context) bool { return ctx.Value(withoutPrimaryKey) != nil }

// UnknownMark stands for a mark that could not be asked for: no replica reaches it.
const UnknownMark = math.MaxInt64

// Written is a mark of all that was committed on the primary before it was asked.
func (s *Store) Written(ctx context.Context) (mark int64, err error) {
	// Not what was written to disk: a commit need not wait for that
	// (synchronous_commit).
	err = s.pool.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&mark)
	if err != nil {
		return 0, fmt.Errorf("written: %w", err)
	}
	return mark, nil
}

// db is the primary, or else the replica for what is only shown while the primary is
// away.
func (s *Store) db(ctx context.Context) *pgxpool.Pool {
	if withoutPrimary(ctx) && s.replica.serves(ctx) {
		return s.replica.pool
	}
	return s.pool
}

// either runs read over the replica, if that is to serve it, and over the primary if
// it is not, or if it failed there: read may be run twice. reach ends when the
// replica is found away.
func (s *Store) either(ctx context.Context, read func(db *pgxpool.Pool, reach context.Context) error) error {
	if !s.replica.serves(ctx) {
		return read(s.pool, context.Background())
	}
	err := read(s.replica.pool, s.replica.reachable())
	if err == nil || ctx.Err() != nil || withoutPrimary(ctx) || errors.Is(err, dlq.ErrTooSlow) {
		return err
	}
	s.replica.failed(err)
	return read(s.pool, context.Background())
}

// within is a context that ends with another one too.
func within(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// serves reports whether a request is read on the replica.
func (r *replica) serves(ctx context.Context) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if withoutPrimary(ctx) {
		return r.state.Sound
	}
	after, _ := ctx.Value(afterKey).(int64)
	return r.state.InUse && r.replayed >= after
}

func (r *replica) reachable() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reach
}

// lamentEvery is how often reads that fell back one by one are logged.
const lamentEvery = time.Minute

// failed takes a replica that is away out of use at once. Any other failure is that of
// one read: such as a conflict with recovery (SQLSTATE 40001, 40P01), or no more
// connections.
func (r *replica) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pgErr *pgconn.PgError
	full := errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "53")
	if Unavailable(err) && !full {
		if r.state.Sound {
			r.settle(WhyUnavailable(err), err)
		}
		return
	}
	if r.reach.Err() == nil && time.Since(r.lamented) > lamentEvery {
		r.lamented = time.Now()
		r.config.Logger.Warn("a read failed on the replica and was done on the primary", "error", conflictAdvice(err))
	}
}

// conflictAdvice is an error as it may be logged, with what helps.
func conflictAdvice(err error) string {
	text := strings.TrimSpace(CodeOf(err))
	if strings.Contains(text, "40001") || strings.Contains(text, "40P01") {
		text += " conflict with recovery; hot_standby_feedback = on at the replica makes them rare"
	}
	return text
}

// settle decides whether the replica is sound (why is empty) and in use, and says so
// where that changed. mu is held.
func (r *replica) settle(why string, err error) {
	was := r.state
	r.state.Sound = why == ""
	switch {
	case !r.state.Sound:
		r.lag = lagMeter{}
		r.lose()
		r.sockets.close()
		r.pool.Reset()
	case r.reach.Err() != nil:
		r.reach, r.lose = context.WithCancel(context.Background())
	}
	if why == "" {
		why = r.behind(was)
	}
	r.state.Why, r.state.InUse = why, why == ""
	switch {
	case r.state.Why == was.Why:
	case r.state.InUse:
		r.config.Logger.Info("tiles, charts, lists and exports are read on the replica", "lag", r.state.Lag)
	case r.state.Sound && r.lag.asOf.IsZero():
		r.config.Logger.Info("the replica is catching up; it is read once it is seen to follow")
	default:
		attrs := []any{"replica", why}
		if err != nil {
			attrs = append(attrs, "error", err)
		}
		r.config.Logger.Warn("tiles, charts, lists and exports are read on the primary", attrs...)
	}
}

// behind says that the replica is too far behind. Once it was, it has to come up to
// half of what it may be, so that it is not taken in and out all the time.
func (r *replica) behind(was ReplicaState) string {
	limit := r.config.LagMax
	if !was.InUse {
		limit /= 2
	}
	switch {
	case r.lag.asOf.IsZero():
		return "is catching up"
	case r.state.Lag > limit && r.blind:
		return "can't be held against the primary"
	case r.state.Lag > limit:
		return fmt.Sprintf("is more than %s behind", r.config.LagMax)
	}
	return ""
}
