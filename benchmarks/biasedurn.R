# Answers biasedurn.py: reads one line of arguments, writes one line of times; results go through files.
suppressPackageStartupMessages(library(BiasedUrn))

answer <- function(...) {
  cat(..., "\n")
  flush(stdout())
}
now <- function() as.numeric(Sys.time())
megabytes <- function(column) sum(gc()[, column])

# A function that computes the values of all items, one column each; `tight` is the precision, or NA for the package's default.
job_of <- function(operation, law, items, m, n, tight, weights, counts) {
  groups <- ncol(weights)
  sizes <- rep(m, groups)
  letter <- if (law == "fisher") "F" else "W"
  law_function <- function(what) {
    name <- paste0(what, if (groups > 2) "M" else "", letter, "NCHypergeo")
    f <- get(name)
    if (is.na(tight)) f else function(...) f(..., precision = tight)
  }
  odds <- weights[, 1] / weights[, 2]
  each <- function(f, length) vapply(seq_len(items), f, numeric(length))
  if (operation == "log_prob") {
    density <- law_function("d")
    if (groups == 2) function() each(function(i) log(density(counts[i, 1], m, m, n, odds[i])), 1)
    else function() each(function(i) log(density(counts[i, ], sizes, n, weights[i, ])), 1)
  } else if (operation == "moments") {
    if (groups == 2) {
      mean_of <- law_function("mean")
      variance_of <- law_function("var")
      function() each(function(i) {
        mean <- mean_of(m, m, n, odds[i])
        variance <- variance_of(m, m, n, odds[i])
        c(mean, n - mean, variance, variance)
      }, 4)
    } else {
      moments_of <- law_function("moments")
      function() each(function(i) unlist(moments_of(sizes, n, weights[i, ])[, 1:2]), 2 * groups)
    }
  } else if (operation == "many-draws") {
    draw <- law_function("r")
    if (groups == 2) function() { x <- draw(items, m, m, n, odds[1]); rbind(x, n - x) }
    else function() draw(items, sizes, n, weights[1, ])
  } else if (operation == "one-draw-each") {
    draw <- law_function("r")
    if (groups == 2) function() { x <- each(function(i) draw(1, m, m, n, odds[i]), 1); rbind(x, n - x) }
    else function() each(function(i) draw(1, sizes, n, weights[i, ]), groups)
  } else {
    odds_of <- law_function("odds")
    if (groups == 2) function() each(function(i) c(0, -log(odds_of(counts[i, 1], m, m, sum(counts[i, ])))), 2)
    else function() each(function(i) log(odds_of(counts[i, ], sizes, sum(counts[i, ]))), groups)
  }
}

serve <- function(operation, law, items, groups, m, n, tight, seconds, shortest, most_rounds, folder) {
  # Doubles: counts and products of counts may exceed R's integers.
  table <- function(name) {
    path <- file.path(folder, name)
    matrix(readBin(path, "double", file.size(path) / 8), ncol = groups, byrow = TRUE)
  }
  run <- job_of(operation, law, items, m, n, tight, table("weights"), table("counts"))
  set.seed(0)
  invisible(gc(reset = TRUE))
  before <- megabytes(2)
  start <- now()
  value <- run()
  first <- now() - start
  peak <- megabytes(6) - before
  times <- first
  if (first < seconds) {
    repeats <- max(1, ceiling(shortest / max(first, 1e-7)))
    rounds <- max(1, min(most_rounds, floor(seconds / max(first * repeats, 1e-7))))
    times <- vapply(seq_len(rounds), function(i) {
      start <- now()
      for (k in seq_len(repeats)) run()
      (now() - start) / repeats
    }, 0)
  } else repeats <- 1
  writeBin(as.double(value), file.path(folder, "value"))
  answer("measured", repeats, max(0, peak) * 2^20, format(times, digits = 17))
}

answer("ready", as.character(packageVersion("BiasedUrn")), paste(R.version$major, R.version$minor, sep = "."))
input <- file("stdin", "r")
while (length(line <- readLines(input, 1)) == 1) {
  fields <- strsplit(line, " ")[[1]]
  numbers <- suppressWarnings(as.numeric(fields[3:10]))
  tryCatch(
    suppressWarnings(do.call(serve, c(list(fields[1], fields[2]), as.list(numbers), list(paste(fields[-(1:10)], collapse = " "))))),
    error = function(problem) answer("failed", gsub("\n", " ", conditionMessage(problem)))
  )
}
