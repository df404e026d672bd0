"""The numbers of the paper that tests hold the bundle to: each with its place and its printed precision."""

# Sizes (Secs. S4.1, S4.2). Counts are exact; the paper prints millions with one decimal.
CHANNELS_LARGE = (96, 192, 384, 768)  # Sec. S4.1, C = 96
CHANNELS_SMALL = (48, 96, 192, 384)  # C = 48, settled in READING-NOTES.md
PARAMETERS_LARGE_APN = 127_920_801  # Sec. S4.1 prints 127.9 M
PARAMETERS_LARGE_VELOCITY = 139_047_841  # Sec. S4.1 prints 139.0 M
PARAMETERS_LARGE = 266_968_642  # Sec. S4.1 and Table S1 print 266.9 M, cut off rather than rounded
PARAMETERS_BASE = 130_899_074  # C = 64, the authors' checkpoint format
PARAMETERS_SMALL = 80_847_778  # Table S1 prints 80.9 M, 80.8 rounded

# Multiply-accumulates of the convolutions, in 1e9, one 128 x 128 patch, both stages once; one decimal (Table S1)
GMACS_LARGE = 173.0
GMACS_SMALL = 43.3  # the table prints 43.5; settled in READING-NOTES.md
GMACS_PRECISION = 0.05

# Architecture (Secs. 3.2, S4.1)
THICKNESS_CONDITION_DIM = 512  # d_c
TIME_CONDITION_DIM = 768
TIME_EMBEDDING_DIM = 256
GROUPS = 32  # of AdaGN
LEVELS = 4
MIN_THICKNESS = 0.1  # mm; authors' checkpoint format

# PAD and AIS (Secs. 3.6, 4.4, S7, S9)
TARGET_HCP = 0.7  # mm, HCP
N_MIN = 0
N_MAX = 15
AIS_STEPS = {1.5: 8, 2.0: 10, 3.0: 12, 4.0: 12, 5.0: 13, 6.0: 13}  # Sec. S9: T_i in mm -> N at T_hr = 0.7 mm
AIS_STEPS_BY_SCALE = {2: 8, 6: 12, 8: 13}  # Sec. 4.4; 15 * PAD is 7.5, 12.5, 13.125

# Objectives (Secs. 3.3-3.5, S6, S8)
SSIM_WEIGHT = 0.5  # lambda_ssim, Sec. 3.3
HUBER_DELTA = 0.1  # Eq. 9
ENDPOINT_ALPHA = 2.0  # Eq. 10, Sec. S8
CETA_WEIGHT = 1.0  # lambda_ceta, Secs. 3.5, S6
CETA_GAP = 1.0  # mm, Delta T, Sec. 3.5
CETA_COVERAGE = {0.5: 91, 1.0: 81, 2.0: 62, 4.0: 25}  # gap in mm -> % of the thickness range, whole percents (Table 3)

# Training (Secs. 4.1, S1, S4.3, S4.4)
PATCH_SIZE = 128  # pixels
MAX_THICKNESS = 6.0  # mm; T_i ~ U(T_hr, 6.0]
EPOCHS = 100  # of either stage
STAGE1_BATCH = 64  # patches per GPU
STAGE2_BATCH = 25
STAGE1_LEARNING_RATE = 1e-4
STAGE2_LEARNING_RATE = 5e-5
ADAMW_BETAS = (0.9, 0.999)
WEIGHT_DECAY = 0.0
WARMUP_SHARE = 0.05  # of all steps
LEARNING_RATE_FLOOR = 0.1  # of the peak rate, where the cosine ends
GRADIENT_CLIP = 1.0
INTENSITY_RANGE = (-1.0, 1.0)
INTENSITY_SCALE = (0.95, 1.05)
INTENSITY_SHIFT = (-0.04, 0.04)

# Inference (Secs. 4.1, S4.5)
WINDOW = 128  # pixels
WINDOW_OVERLAP = 32  # pixels
