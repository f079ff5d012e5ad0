# Writes wallenius_r.json: probabilities of Wallenius' law by the R package BiasedUrn, at the tightest precision it takes.
# Run from the repository root:  Rscript tests/data/record_wallenius.R && python tests/wallenius_oracles.py
# The second command adds each probability's digits by high-precision integration, and so tells where BiasedUrn itself is wrong.
library(BiasedUrn)

urns <- list(  # group sizes, draws, odds
  # two groups, from one ball to 1e5 of each
  list(c(1, 1), 1, c(3, 1)), list(c(5, 4), 1, c(0.2, 1)), list(c(5, 4), 8, c(0.2, 1)), list(c(1, 20), 5, c(7, 1)),
  list(c(10, 15), 12, c(2.5, 1)), list(c(10, 15), 12, c(1e-3, 1)), list(c(10, 15), 12, c(1e3, 1)), list(c(10, 15), 12, c(1, 1)),
  list(c(25, 25), 25, c(1e6, 1)), list(c(25, 25), 25, c(1e-6, 1)), list(c(25, 25), 24, c(1e6, 1)), list(c(25, 25), 26, c(1e6, 1)),
  list(c(40, 60), 99, c(3, 1)), list(c(40, 60), 99, c(1e-4, 1)), list(c(40, 60), 50, c(0.01, 1)), list(c(40, 60), 2, c(500, 1)),
  list(c(100, 100), 60, c(4, 1)), list(c(200, 400), 180, c(1e-6, 1)), list(c(200, 400), 180, c(30, 1)), list(c(325, 1876), 711, c(5.5, 1)),
  list(c(1000, 1000), 900, c(0.6, 1)), list(c(1000, 1000), 1900, c(8, 1)), list(c(1000, 10), 30, c(0.02, 1)), list(c(1000, 1), 500, c(0.5, 1)),
  list(c(5000, 3000), 1, c(1e5, 1)), list(c(10000, 10000), 7000, c(3, 1)), list(c(10000, 10000), 19990, c(3, 1)), list(c(10000, 500), 600, c(1e-2, 1)),
  list(c(100000, 100000), 110000, c(2.5, 1)), list(c(100000, 100000), 50, c(0.1, 1)), list(c(100000, 20), 40000, c(0.3, 1)),
  list(c(100000, 50000), 149990, c(1.7, 1)),
  # three groups
  list(c(10, 7, 8), 9, c(1, 2, 0.5)), list(c(10, 7, 8), 24, c(1, 2, 0.5)), list(c(10, 7, 8), 1, c(1, 2, 0.5)), list(c(5, 5, 5), 5, c(1e6, 1, 1e-6)),
  list(c(5, 5, 5), 6, c(1e6, 1, 1e-6)), list(c(5, 5, 5), 10, c(1e3, 1, 1e-3)), list(c(5, 5, 5), 4, c(1e-6, 1, 1e6)), list(c(30, 20, 10), 25, c(0.1, 1, 10)),
  list(c(200, 200, 200), 180, c(1, 2, 1)), list(c(200, 200, 200), 180, c(1, 10, 1)), list(c(200, 200, 200), 550, c(1, 5, 0.2)), list(c(1, 50, 400), 90, c(40, 3, 1)),
  list(c(1000, 700, 800), 900, c(1, 2, 0.5)), list(c(10000, 8000, 12000), 9000, c(1, 1.5, 0.7)), list(c(100000, 50000, 20000), 60000, c(1, 2, 4)),
  list(c(2, 3, 100000), 6, c(1e4, 1e4, 1)), list(c(60, 60, 60), 90, c(1, 1, 1)),
  # four to eight groups
  list(c(325, 285, 706, 885), 711, c(6, 2.5, 1, 0.8)), list(c(4, 4, 4, 4), 8, c(1, 2, 4, 8)), list(c(4, 4, 4, 4), 15, c(1, 2, 4, 8)),
  list(c(12, 3, 9, 6), 14, c(1e-2, 1, 1e2, 1e4)), list(c(1, 1, 1, 1, 1), 2, c(0.2, 3, 1, 1, 0.7)), list(c(3, 6, 2, 8, 5), 11, c(5, 0.5, 20, 1, 2)),
  list(c(50, 40, 30, 20, 10), 75, c(1, 2, 3, 4, 5)), list(c(500, 400, 300, 200, 100), 600, c(0.5, 1, 1.5, 2, 2.5)), list(c(7, 7, 7, 7, 7, 7), 20, c(1, 2, 1, 2, 1, 2)),
  list(c(2, 4, 6, 8, 10, 12), 1, c(9, 7, 5, 3, 1, 1)), list(c(90, 80, 70, 60, 50, 40), 200, c(0.1, 0.3, 1, 3, 10, 30)),
  list(c(1, 1, 1, 1, 1, 1, 1), 4, c(1, 2, 4, 8, 16, 32, 64)), list(c(10, 20, 30, 40, 50, 60, 70), 90, c(7, 6, 5, 4, 3, 2, 1)),
  list(c(3, 1, 4, 1, 5, 9, 2, 6), 13, c(2, 7, 1, 8, 2, 8, 1, 8)), list(c(100, 100, 100, 100, 100, 100, 100, 100), 350, c(1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5)),
  list(c(5, 5, 5, 5, 5, 5, 5, 5), 39, c(1, 10, 1e2, 1e3, 1, 1, 1, 1)), list(c(2000, 2000, 2000, 2000, 10, 10, 10, 10), 3000, c(1, 1, 2, 2, 5, 5, 0.1, 0.1))
)

# Whole counts nearest to the mean, and the same with `moved` balls of the group that has most taken out, put into the next with room.
points <- function(m, n, odds) {
  mean <- meanMWNCHypergeo(m, n, odds)
  centre <- pmin(floor(mean), m)
  for (j in rep(order(centre - mean), length.out = n)) if (sum(centre) < n && centre[j] < m[j]) centre[j] <- centre[j] + 1
  for (j in rep(seq_along(m), n)) if (sum(centre) < n && centre[j] < m[j]) centre[j] <- centre[j] + 1
  moved <- centre
  from <- which.max(centre)
  into <- setdiff(order(m - centre, decreasing = TRUE), from)[1]
  number <- min(centre[from], m[into] - centre[into], ceiling(2.5 * sqrt(n) / 2))
  moved[c(from, into)] <- moved[c(from, into)] + c(-number, number)
  unique(list(centre, moved))
}

number <- function(values) sprintf("%.15g", values)
vector <- function(values) paste0("c(", paste(number(values), collapse = ", "), ")")
array <- function(values) paste0("[", paste(number(values), collapse = ", "), "]")

row <- function(x, m, n, odds) {
  call <- if (length(m) == 2) sprintf("dWNCHypergeo(%s, precision = 1e-14)", paste(number(c(x[1], m, n, odds[1] / odds[2])), collapse = ", "))
          else sprintf("dMWNCHypergeo(%s, %s, %s, %s, precision = 1e-14)", vector(x), vector(m), number(n), vector(odds))
  value <- eval(parse(text = call))
  logarithm <- if (value > 0) sprintf("%.17g", log(value)) else "null"
  sprintf('{"call": "%s", "sizes": %s, "draws": %s, "odds": %s, "counts": %s, "value": %.17g, "log": %s}',
          call, array(m), number(n), array(odds), array(x), value, logarithm)
}

rows <- unlist(lapply(urns, function(urn) sapply(points(urn[[1]], urn[[2]], urn[[3]]), row, urn[[1]], urn[[2]], urn[[3]])))
header <- sprintf('"R": "%s", "BiasedUrn": "%s"', R.version.string, packageVersion("BiasedUrn"))
writeLines(c(paste0("{", header, ', "rows": ['), paste(rows, collapse = ",\n"), "]}"), "tests/data/wallenius_r.json")
